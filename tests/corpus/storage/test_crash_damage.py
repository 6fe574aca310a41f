"""Bits that flip and files that are cut, anywhere in the record: said, or harmless; never a quiet loss."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from crash_support import Nursery
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionDamaged, CorpusError, DocumentNotFound

STEP = Path(__file__).with_name("crash_step.py")
SEED = 20261130
PAGE = 8_192
DOCUMENTS = 60


def text_of(i: int) -> str:
    return f"document{i}x tells of the voyage of ship {i * i} to port {i % 7}. " * (1 + i % 9)


TEXTS = {f"d{i:02}": text_of(i) for i in range(DOCUMENTS)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "c"
    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert(
            [prepared(name, text, title=f"Title of {name}", metadata={"n": 3}) for name, text in TEXTS.items()],
            source_id="s",
        )
        opened.delete_documents(["d00"])
    return path


def what_is_wrong(path: Path, vectors: np.ndarray) -> str | None:
    """How a damaged collection says so, in use or by verify; None if it does not, and then everything must be there."""
    try:
        with Collection.open(path, embedder=EMBEDDER) as opened:
            whole = is_whole(opened, vectors)
            report = opened.verify()
    except CorpusError as error:
        if not isinstance(error, CollectionDamaged) or str(path) not in str(error):
            raise
        return str(error)
    if not report.ok:
        return "verify: " + report.problems[0]
    assert whole
    return None


def is_whole(opened: Collection, vectors: np.ndarray) -> bool:
    """Whether everything is as it was written."""
    expected = {name: text for name, text in TEXTS.items() if name != "d00"}
    chunk_ids = []
    try:
        whole = {info.id: opened.text(info.id) for info in opened.documents()} == expected
        for name, text in expected.items():
            chunks = opened.read(name)
            whole &= "".join(chunk.text for chunk in chunks) == text
            whole &= {chunk.title for chunk in chunks} == {f"Title of {name}"}
            chunk_ids += [chunk.id for chunk in chunks]
            found = opened.grep(text.split()[0], limit=1)
            whole &= bool(found) and found[0].chunk.document_id == name
            opened.search(text, limit=50)
            assert opened.wait_for_repair(60)
            whole &= name in {hit.chunk.document_id for hit in opened.search(text, limit=50) if hit.bm25 is not None}
        return whole and np.array_equal(opened.vectors(chunk_ids), vectors)
    except (DocumentNotFound, KeyError):
        return False


@pytest.fixture(scope="module")
def vectors(template: Path) -> np.ndarray:
    with Collection.open(template, embedder=EMBEDDER) as opened:
        return opened.vectors([chunk.id for name in TEXTS if name != "d00" for chunk in opened.read(name)])


def flip(content: bytearray, at: int) -> None:
    content[at] ^= 1 << (at % 8)


def zero(content: bytearray, at: int) -> None:
    content[at : at + 512] = bytes(len(content[at : at + 512]))


def scramble(content: bytearray, at: int) -> None:
    content[at : at + 64] = random.Random(at).randbytes(len(content[at : at + 64]))


def cut(content: bytearray, at: int) -> None:
    del content[at:]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, zero, scramble, cut])
def test_damage_anywhere_in_the_record_is_said_or_harmless(
    template: Path, vectors: np.ndarray, tmp_path: Path, damage: Callable[[bytearray, int], None]
) -> None:
    whole = (template / "corpus.db").read_bytes()
    rng = random.Random(SEED)
    boundaries = [page * PAGE + offset for page in range(0, len(whole) // PAGE, 5) for offset in (0, 5, PAGE - 1)]
    offsets = sorted({*boundaries, *(rng.randrange(len(whole)) for _ in range(24))})
    said = 0
    for at in offsets:
        path = tmp_path / "c"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path)
        content = bytearray(whole)
        damage(content, at)
        (path / "corpus.db").write_bytes(content)
        try:
            said += what_is_wrong(path, vectors) is not None
        except Exception as error:
            raise AssertionError(f"{damage.__name__} at {at} of {len(whole)}") from error
    print(f"{damage.__name__}: {said} of {len(offsets)} said, the others harmless")
    assert said > len(offsets) / 4


@pytest.mark.slow
def test_a_torn_log_leaves_a_whole_earlier_state(tmp_path: Path, template: Path) -> None:
    """The write-ahead log is cut or damaged: what is read is the record after one of the writes, never between."""
    with Nursery() as nursery:
        path = tmp_path / "killed"
        shutil.copytree(template, path)
        # Twenty writes, then death before the log is folded into the database.
        target = "thresher.corpus.collection:Collection.close"
        victim = nursery.start(STEP, [str(path), "write_many", target, "before", "1"])
        victim.stdout.read()
        assert victim.wait() == -signal.SIGKILL
    log = (path / "corpus.db-wal").read_bytes()
    assert len(log) > 10 * PAGE
    rng = random.Random(SEED)
    for round_number in range(8):
        torn = tmp_path / f"torn{round_number}"
        shutil.copytree(path, torn)
        content = bytearray(log)
        (cut, flip)[round_number % 2](content, rng.randrange(len(log)))
        (torn / "corpus.db-wal").write_bytes(content)
        (torn / "corpus.db-shm").unlink(missing_ok=True)
        with Collection.open(torn, embedder=EMBEDDER) as opened:
            texts = {info.id: opened.text(info.id) for info in opened.documents()}
            extra = sorted(name for name in texts if name.startswith("n"))
            assert extra == [f"n{i:02}" for i in range(len(extra))]
            for name in texts:
                assert "".join(chunk.text for chunk in opened.read(name)) == texts[name]
            report = opened.verify()
            if not report.ok:
                opened.rebuild()
                report = opened.verify()
            assert report.ok, report.problems
        shutil.rmtree(torn)


@pytest.mark.slow
def test_any_lost_file_of_tantivy_is_made_anew(template: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    (generation,) = (p for p in (template / "tantivy").iterdir() if p.is_dir())
    files = sorted(p.name for p in generation.iterdir() if p.is_file() and not p.name.startswith(".tantivy"))
    assert len(files) > 3
    for name in files:
        path = tmp_path / name
        shutil.copytree(template, path)
        (path / "tantivy" / generation.name / name).unlink()
        assert what_is_wrong(path, vectors) is None, name
        shutil.rmtree(path)


def test_verify_tells_text_that_changed_in_the_file(template: Path, tmp_path: Path) -> None:
    """Sound as a database, and wrong all the same."""
    for table, column in (("chunks_text", "text"), ("documents_text", "text"), ("vectors", "vector")):
        path = tmp_path / table
        shutil.copytree(template, path)
        with sqlite3.connect(path / "corpus.db") as connection:
            value = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()[0]
            other = value.replace("voyage", "savage") if isinstance(value, str) else value[:-1] + b"?"
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (other, value))
        connection.close()
        with Collection.open(path, embedder=EMBEDDER) as opened:
            problems = opened.verify().problems
            assert any("corpus.db" in problem for problem in problems), (table, problems)
