"""Chroma's files, really torn: each is noticed before anything opens it, in every mode that opens files."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import load_backends
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.vectors.base import IndexHome
from thresher.corpus.vectors.child import ChildHome
from thresher.corpus.vectors.chroma import ChromaIndex
from thresher.corpus.vectors.files import ChromaUnusable, check_files, check_save
from thresher.corpus.vectors.local import LocalHome

DIMENSION = 32
SAVED = 2_000
LOGGED = 300


def unit(rows: int, seed: int) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def fill(directory: Path) -> None:
    """A graph that was saved, and a log with more than the save covers."""
    index = ChromaIndex(directory)
    index.apply(add=range(SAVED), vectors=unit(SAVED, 1), remove=[])
    index.apply(add=range(SAVED, SAVED + LOGGED), vectors=unit(LOGGED, 2), remove=range(40))
    index.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("torn") / "chroma" / "1"
    fill(directory)
    return directory


@pytest.fixture
def directory(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "chroma" / "1"))


def segment(directory: Path) -> Path:
    return next(directory.glob("*/header.bin")).parent


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def inflate(file: Path) -> None:
    os.truncate(file, 10**12)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def remove(file: Path) -> None:
    file.unlink()


def scribble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4_000] = os.urandom(min(4_000, len(content) - middle))
    file.write_bytes(bytes(content))


def scribble_on_the_ids(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'embeddings'").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))


GRAPH = ["header.bin", "data_level0.bin", "length.bin", "link_lists.bin"]
ALWAYS_SEEN = [
    *((name, damage) for name in [*GRAPH, "chroma.sqlite3"] for damage in (halve, empty, inflate, remove)),
    ("header.bin", zero),
    ("header.bin", scribble),
    ("link_lists.bin", scribble),
    ("chroma.sqlite3", zero),
    ("index_metadata.pickle", halve),
    ("index_metadata.pickle", empty),
    ("index_metadata.pickle", zero),
]
SEEN_AFTER_AN_UNCLEAN_END = [
    ("data_level0.bin", zero),
    ("data_level0.bin", scribble),
    ("index_metadata.pickle", scribble),
    ("index_metadata.pickle", remove),
    ("chroma.sqlite3", scribble_on_the_ids),
]


def file_of(directory: Path, name: str) -> Path:
    return directory / name if name.endswith("sqlite3") else segment(directory) / name


def named(case: object) -> str:
    return case if isinstance(case, str) else getattr(case, "__name__", "")


@pytest.mark.parametrize(("name", "damage"), ALWAYS_SEEN, ids=named)
def test_a_torn_file_is_noticed_before_it_is_opened(directory: Path, name: str, damage: Callable[[Path], None]) -> None:
    check_files(directory)
    check_save(directory)
    damage(file_of(directory, name))
    with pytest.raises(ChromaUnusable):
        check_files(directory)
    for home in (LocalHome(directory.parent), ChildHome(directory.parent)):
        with pytest.raises(ChromaUnusable):
            home.open(1)


@pytest.mark.parametrize(("name", "damage"), SEEN_AFTER_AN_UNCLEAN_END, ids=named)
def test_damage_inside_a_file_is_noticed_after_an_unclean_end(
    directory: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(file_of(directory, name))
    directory.with_name("1.open").touch()
    for home in (LocalHome(directory.parent), ChildHome(directory.parent)):
        with pytest.raises(ChromaUnusable):
            home.open(1)


def test_a_pickle_that_would_run_something_does_not(directory: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path}/exploded",)

    (segment(directory) / "index_metadata.pickle").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ChromaUnusable, match="it names"):
        check_save(directory)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("home", [LocalHome, ChildHome])
def test_a_whole_directory_opens_after_an_unclean_end(directory: Path, home: Callable[[Path], IndexHome]) -> None:
    directory.with_name("1.open").touch()
    index = home(directory.parent).open(1)
    assert index.was_unclean
    assert index.ids() == set(range(40, SAVED + LOGGED))
    rows = np.concatenate([unit(SAVED, 1), unit(LOGGED, 2)])
    for i in (40, 1_999, 2_000, SAVED + LOGGED - 1):
        assert index.search(rows[i], 1)[0][0] == i
    index.close()


# Saves that were cut short. Chroma's own save stops between the graph and the list of ids if that cannot be written.


@pytest.fixture(scope="module")
def cut_short(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose graph was saved anew, while the list of ids and the log are from before."""
    directory = tmp_path_factory.mktemp("cut") / "chroma" / "1"
    shutil.copytree(template, directory)
    index = ChromaIndex(directory)
    assert index.search(unit(1, 9)[0], 1)  # loads the graph
    ids_file = segment(directory) / "index_metadata.pickle"
    before = ids_file.read_bytes()
    ids_file.unlink()
    ids_file.mkdir()
    with pytest.raises(Exception, match="hnsw"):
        index.apply(add=range(5_000, 6_000), vectors=unit(1_000, 3), remove=[])
    index.abandon()
    ids_file.rmdir()
    ids_file.write_bytes(before)
    return directory


def graph_and_ids(directory: Path, template: Path) -> None:
    """Killed between the graph and the list of ids."""


def only_the_header(directory: Path, template: Path) -> None:
    for name in GRAPH[1:]:
        shutil.copy(segment(template) / name, segment(directory) / name)


def known_rows_only(directory: Path, template: Path) -> None:
    """Rows that were there link to rows that were not written: what lists vectors and does not find them."""
    level0 = segment(directory) / "data_level0.bin"
    row = level0.stat().st_size // (SAVED + LOGGED + 1_000)
    content = level0.read_bytes()
    level0.write_bytes(content[: SAVED * row] + bytes(len(content) - SAVED * row))


def no_upper_levels(directory: Path, template: Path) -> None:
    shutil.copy(segment(template) / "link_lists.bin", segment(directory) / "link_lists.bin")


def no_header(directory: Path, template: Path) -> None:
    """Not by a kill, but the disk may write in any order when the power fails."""
    shutil.copy(segment(template) / "header.bin", segment(directory) / "header.bin")


@pytest.mark.parametrize(
    "cut", [graph_and_ids, only_the_header, known_rows_only, no_upper_levels, no_header], ids=named
)
def test_a_save_that_was_cut_short_is_not_used(
    cut_short: Path, template: Path, tmp_path: Path, cut: Callable[[Path, Path], None]
) -> None:
    directory = Path(shutil.copytree(cut_short, tmp_path / "chroma" / "1"))
    cut(directory, template)
    with pytest.raises(ChromaUnusable):
        check_save(directory)
    directory.with_name("1.open").touch()
    with pytest.raises(ChromaUnusable):
        LocalHome(directory.parent).open(1)


def test_a_graph_older_than_the_log_that_was_dropped_is_not_used(template: Path, tmp_path: Path) -> None:
    """Power loss: SQLite is synced, the graph is not. What was only in the graph is listed, and never found."""
    directory = Path(shutil.copytree(template, tmp_path / "chroma" / "1"))
    index = ChromaIndex(directory)
    index.apply(add=range(5_000, 6_500), vectors=unit(1_500, 3), remove=[])
    index.close()
    check_save(directory)
    for file in segment(template).iterdir():
        shutil.copy(file, segment(directory) / file.name)
    check_files(directory)
    with pytest.raises(ChromaUnusable, match="in no graph"):
        check_save(directory)


def test_deletions_that_only_the_graph_knows_are_noticed(template: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(template, tmp_path / "chroma" / "1"))
    index = ChromaIndex(directory)
    before = (segment(directory) / "index_metadata.pickle").read_bytes()
    index.apply(add=[], vectors=unit(0, 1), remove=range(100, 1_400))
    index.close()
    check_save(directory)
    (segment(directory) / "index_metadata.pickle").write_bytes(before)
    with pytest.raises(ChromaUnusable):
        check_save(directory)


def test_a_log_that_lost_an_entry_is_noticed(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "chroma.sqlite3")) as connection, connection:
        connection.execute("DELETE FROM embeddings_queue WHERE id = '2100'")
    with pytest.raises(ChromaUnusable, match="in no graph"):
        check_save(directory)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["in-process", "child"])
@pytest.mark.parametrize(
    ("name", "damage"),
    [("link_lists.bin", inflate), ("data_level0.bin", halve), ("header.bin", zero), ("chroma.sqlite3", halve)],
    ids=named,
)
def test_a_collection_survives_a_torn_file(
    tmp_path: Path, spec: str, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Put aside, searched exactly meanwhile, built anew from the record."""
    backends = load_backends(spec)
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER, exact_below=0, backends=backends) as opened:
        opened.upsert([prepared(f"d{i:04}", f"alpha {i} beta {i * i}") for i in range(1_100)], source_id="s")
        assert opened.wait_for_repair(60)
    damage(file_of(path / "chroma" / "1", name))
    with Collection.open(path, embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        hits = opened.search("alpha 77 beta 5929")
        assert "d0077" in {hit.chunk.document_id for hit in hits if hit.dense == pytest.approx(1.0, abs=1e-5)}
        assert "put aside" in caplog.text
        assert "torn" in caplog.text or "sound" in caplog.text
        assert opened.wait_for_repair(60)
        assert opened.stats().dense == "chroma"
        assert opened._dense.progress.generation == 2
        assert opened.verify().ok


# Killed inside a save, for real: the kernel ends the process when a file of the graph grows past a limit.

SAVER = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from thresher.corpus.vectors.chroma import ChromaIndex

def unit(rows, seed):
    matrix = np.random.default_rng(seed).normal(size=(rows, 256)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)

directory, limit, deleting = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "deleting"
index = ChromaIndex(directory)
if not limit:
    index.apply(add=range(4000), vectors=unit(4000, 1), remove=[])
    index.close()
    sys.exit()
index.search(unit(1, 1)[0], 1)
level0 = next(directory.glob("*/data_level0.bin")).stat().st_size
assert level0 + limit > (directory / "chroma.sqlite3").stat().st_size
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (level0 + limit, level0 + limit))
for step in range(30):
    first = 10_000 + 40 * step
    remove = range(40 * step, 40 * step + 20) if deleting else []
    index.apply(add=range(first, first + 40), vectors=unit(40, first), remove=remove)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["adding", "deleting"])
def test_a_kill_inside_a_save_is_noticed(tmp_path: Path, what: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    base = tmp_path / "base"
    subprocess.run([sys.executable, "-c", SAVER, str(base), "0", what], check=True, env=environment)
    for limit in (1_000, 150_000, 500_000):
        directory = Path(shutil.copytree(base, tmp_path / str(limit) / "1"))
        directory.with_name("1.open").touch()
        ended = subprocess.run([sys.executable, "-c", SAVER, str(directory), str(limit), what], env=environment)
        assert ended.returncode == -signal.SIGXFSZ
        for home in (LocalHome(directory.parent), ChildHome(directory.parent)):
            with pytest.raises(ChromaUnusable):
                home.open(1)
