"""Snapshots of busy collections, and what comes out of them: all of it, or the collection that was there before."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage_support import EMBEDDER, SpreadEmbedder, prepared, source

from thresher.corpus.collection import Collection
from thresher.corpus.errors import (
    CollectionExists,
    CollectionLocked,
    CollectionMismatch,
    CorpusError,
    EmbedderError,
    StorageFull,
    TransferError,
)
from thresher.corpus.lifecycle import snapshots
from thresher.corpus.lifecycle.reindex import build_next, switch_back, switch_to_next
from thresher.corpus.lifecycle.snapshots import restore_snapshot, take_snapshot
from thresher.corpus.manifest import read_manifest
from thresher.corpus.paths import collection_path, is_collection, list_collections


def filled(path: Path, word: str = "alpha", documents: int = 40) -> Collection:
    opened = Collection.create(path, EMBEDDER)
    opened.upsert([prepared(f"d{i}", f"{word} {i} beta", title=f"T{i}") for i in range(documents)], source_id="s")
    opened.finish_source(source("s"), keep={f"d{i}" for i in range(documents)})
    return opened


def texts(path: Path) -> dict[str, str]:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        report = opened.verify()
        assert report.ok, report.problems
        found = {info.id: opened.text(info.id) for info in opened.documents()}
        if "d7" in found:
            hit = opened.search(f"T7\n{found['d7']}")[0]
            assert (hit.chunk.document_id, hit.dense) == ("d7", pytest.approx(1.0, abs=1e-4))
            assert hit.bm25 is not None
        return found


def test_a_snapshot_is_restored_under_a_new_name(thresher_home: Path, tmp_path: Path) -> None:
    path = collection_path("notes")
    with filled(path) as opened:
        report = take_snapshot(opened, tmp_path / "snap")
        assert (report.documents, report.chunks) == (40, 40)
        assert report.bytes == sum(p.stat().st_size for p in (tmp_path / "snap").iterdir())
        opened.delete_documents(["d7"])
        sources = opened.sources()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["snap", "thresher-home"]
    restored = restore_snapshot(tmp_path / "snap", collection_path("copy"))
    for folder in (tmp_path / "snap", collection_path("copy")):
        assert folder.stat().st_mode & 0o077 == 0, "documents are for their owner only"
    assert (restored.documents, restored.replaced) == (40, False)
    assert list_collections() == ["copy", "notes"]
    assert read_manifest(collection_path("copy")).name == "copy"
    assert texts(collection_path("copy")) == {f"d{i}": f"alpha {i} beta" for i in range(40)}
    assert "d7" not in texts(path)
    with Collection.open(collection_path("copy"), embedder=EMBEDDER) as opened:
        assert [s.id for s in opened.sources()] == [s.id for s in sources]
        opened.upsert([prepared("new", "fresh words")], source_id="s")
        assert opened.search("fresh words")[0].chunk.document_id == "new"
        (collection_path("copy") / "manifest.json").unlink()
    with Collection.open(collection_path("copy"), embedder=EMBEDDER) as opened:
        assert opened.name == "copy"
    with pytest.raises(CollectionExists, match="--replace"):
        restore_snapshot(tmp_path / "snap", path)


class FarEmbedder(SpreadEmbedder):
    """Claims to embed at an address."""

    def __init__(self) -> None:
        super().__init__(64)
        self.info = dataclasses.replace(self.info, spec="openai:m@https://embeddings.example/v1")


def test_a_snapshot_sends_questions_nowhere_that_was_not_named(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "own", FarEmbedder()) as opened:
        take_snapshot(opened, tmp_path / "snap")
    for endpoints in ([], ["openai:m@https://other.example/v1"]):
        with pytest.raises(EmbedderError, match=r"m@https://embeddings\.example/v1: every question.*--embedder"):
            restore_snapshot(tmp_path / "snap", tmp_path / "copy", endpoints=endpoints)
        assert not (tmp_path / "copy").exists()
    restore_snapshot(tmp_path / "snap", tmp_path / "copy", endpoints=["openai:m@https://embeddings.example/v1"])
    restore_snapshot(tmp_path / "snap", tmp_path / "mine")
    assert is_collection(tmp_path / "copy")
    assert is_collection(tmp_path / "mine")


def test_snapshots_of_a_busy_collection_are_of_one_moment(tmp_path: Path) -> None:
    stop = threading.Event()
    with Collection.create(tmp_path / "c", EMBEDDER) as opened:

        def write() -> None:
            number = 0
            with opened.bulk():
                while not stop.is_set():
                    number += 1
                    opened.upsert([prepared(f"{side}{number % 7}", f"write {number}") for side in "ab"], source_id="s")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(4):
                take_snapshot(opened, tmp_path / f"s{number}")
        finally:
            stop.set()
            writer.join()
    for number in range(4):
        restore_snapshot(tmp_path / f"s{number}", tmp_path / f"r{number}")
        found = texts(tmp_path / f"r{number}")
        assert {k[1:]: v for k, v in found.items() if k[0] == "a"} == {
            k[1:]: v for k, v in found.items() if k[0] == "b"
        }


def test_replacing_keeps_what_lies_beside_level(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        take_snapshot(opened, tmp_path / "snap")
        build_next(opened, chunker="structure-1:16")
    switch_to_next(path)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        opened.upsert([prepared("d7", "omega", title="T7")], source_id="s")
        opened.upsert([prepared("later", "psi")], source_id="s")
    assert restore_snapshot(tmp_path / "snap", path, replace=True).replaced
    expected = texts(path)
    assert len(expected) == 40
    assert expected["d7"] == "alpha 7 beta"
    switch_back(path)
    assert texts(path) == expected
    assert {p.name for p in path.iterdir()} == {"lock", "corpus.db", "manifest.json", "tantivy", "chroma", "previous"}


def rewrite(snap: Path, **fields: Any) -> None:
    file = snap / "snapshot.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def cut(file: Path, share: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda s: cut(s / "corpus.db", 0.5), TransferError, r"corpus\.db is damaged.*another snapshot"),
        (lambda s: flip(s / "corpus.db"), TransferError, r"corpus\.db is damaged"),
        (lambda s: flip(s / "manifest.json"), TransferError, r"manifest\.json is damaged"),
        (lambda s: (s / "corpus.db").unlink(), TransferError, r"corpus\.db cannot be read"),
        (lambda s: (s / "snapshot.json").unlink(), TransferError, "is not a snapshot"),
        (lambda s: cut(s / "snapshot.json", 0.5), TransferError, r"snapshot\.json is damaged"),
        (lambda s: rewrite(s, version=2), CollectionMismatch, "version 2, this release restores version 1"),
        (lambda s: rewrite(s, format="other"), TransferError, "is not a snapshot"),
        (lambda s: rewrite(s, files={}), TransferError, "does not list"),
        (lambda s: rewrite(s, documents=41), TransferError, "40 documents"),
    ],
)
def test_a_damaged_snapshot_changes_nothing(
    tmp_path: Path, damage: Callable[[Path], Any], error: type[CorpusError], message: str
) -> None:
    path, snap = tmp_path / "c", tmp_path / "snap"
    with filled(path) as opened:
        take_snapshot(opened, snap)
        opened.upsert([prepared("d7", "omega", title="T7")], source_id="s")
    damage(snap)
    before = sorted(p.name for p in path.iterdir())
    with pytest.raises(error, match=message):
        restore_snapshot(snap, path, replace=True)
    with pytest.raises(error, match=message):
        restore_snapshot(snap, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert sorted(p.name for p in path.iterdir()) == before
    assert texts(path)["d7"] == "omega"


def test_places_that_are_taken_are_left_alone(tmp_path: Path) -> None:
    with filled(tmp_path / "c") as opened:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "empty").mkdir()
        for place in ("file", "empty"):
            with pytest.raises(TransferError, match="there already"):
                take_snapshot(opened, tmp_path / place)
        with pytest.raises(TransferError, match="inside"):
            take_snapshot(opened, tmp_path / "c" / "snap")
        take_snapshot(opened, tmp_path / "deep" / "snap")
        with pytest.raises(CollectionLocked):
            restore_snapshot(tmp_path / "deep" / "snap", tmp_path / "c", replace=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(CollectionExists, match="not empty"):
        restore_snapshot(tmp_path / "deep" / "snap", tmp_path / "full", replace=True)
    restore_snapshot(tmp_path / "deep" / "snap", tmp_path / "empty")
    assert len(texts(tmp_path / "empty")) == 40


def test_leftovers_of_a_snapshot_that_was_killed_are_no_obstacle(tmp_path: Path) -> None:
    with filled(tmp_path / "c") as opened:
        (tmp_path / ".snap.part").mkdir()
        (tmp_path / ".snap.part" / "corpus.db").write_bytes(b"half")
        take_snapshot(opened, tmp_path / "snap")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "snap"]
    assert sorted(p.name for p in (tmp_path / "snap").iterdir()) == ["corpus.db", "manifest.json", "snapshot.json"]


def test_a_restored_collection_that_does_not_open_gives_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        take_snapshot(opened, tmp_path / "snap")
        opened.upsert([prepared("d7", "omega", title="T7")], source_id="s")
    look_in = snapshots._look_in

    def fails_in_place(place: Path, contents: Any) -> None:
        if place == path:
            raise RuntimeError("it does not open")
        look_in(place, contents)

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "_look_in", fails_in_place)
        with pytest.raises(RuntimeError):
            restore_snapshot(tmp_path / "snap", path, replace=True)
    assert texts(path)["d7"] == "omega"
    assert {p.name for p in path.iterdir()} == {"lock", "corpus.db", "manifest.json", "tantivy", "chroma"}


CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync")


@pytest.mark.parametrize(
    ("there", "every"),
    [(True, 45), pytest.param(True, 4, marks=pytest.mark.slow), pytest.param(False, 2, marks=pytest.mark.slow)],
)
def test_a_restore_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path, there: bool, every: int) -> None:
    """Killed before every call to the file system in turn, in a process of its own: it runs index threads."""
    with filled(tmp_path / "t") as opened:
        take_snapshot(opened, tmp_path / "snap")
        opened.upsert([prepared("d7", "omega", title="T7")], source_id="s")
    seen = set()
    for number in range(0, 1000, every):
        work = tmp_path / "c"
        if there:
            shutil.copytree(tmp_path / "t", work)
        killed = restore_until(tmp_path / "snap", work, number)
        if is_collection(work):
            seen.add(texts(work)["d7"])
            assert {p.name for p in work.iterdir()} <= {"lock", "corpus.db", "manifest.json", "tantivy", "chroma",
                                                        "restored", "replaced"}  # fmt: skip
        else:
            assert not there
        assert restore_snapshot(tmp_path / "snap", work, replace=True).documents == 40
        assert {p.name for p in work.iterdir()} <= {"lock", "corpus.db", "manifest.json", "tantivy", "chroma"}
        shutil.rmtree(work)
        if not killed:
            assert seen == ({"omega", "alpha 7 beta"} if there else {"alpha 7 beta"})
            return
    raise AssertionError("it never came to its end")


RESTORER = """
import os, signal, sys
from pathlib import Path
from thresher.corpus.lifecycle.snapshots import restore_snapshot
left = int(sys.argv[3])
def counted(call):
    def run(*args, **kwargs):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return call(*args, **kwargs)
    return run
for name in sys.argv[4].split(","):
    setattr(os, name, counted(getattr(os, name)))
restore_snapshot(Path(sys.argv[1]), Path(sys.argv[2]), replace=True)
"""


def restore_until(snapshot: Path, path: Path, number: int) -> bool:
    child = subprocess.run(
        [sys.executable, "-c", RESTORER, str(snapshot), str(path), str(number), ",".join(CALLS)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return child.returncode != 0


FULL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from storage_support import EMBEDDER
from thresher.corpus.collection import Collection
from thresher.corpus.errors import StorageFull
from thresher.corpus.lifecycle.snapshots import restore_snapshot, take_snapshot
from thresher.corpus.lifecycle.transfer import export_collection
small, path, snap = Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
def full(what):
    try:
        what()
    except StorageFull as error:
        assert "no space left" in str(error), error
    else:
        raise AssertionError("it was not full")
with Collection.open(path, embedder=EMBEDDER) as opened:
    full(lambda: take_snapshot(opened, small / "snap"))
    full(lambda: export_collection(opened, small / "x.jsonl"))
assert list(small.iterdir()) == [], list(small.iterdir())
full(lambda: restore_snapshot(snap, small / "c"))
assert list(small.iterdir()) == [], list(small.iterdir())
"""


def test_a_full_disk_leaves_nothing_half_done(tmp_path: Path) -> None:
    mount = "mount -t tmpfs -o size=256k tmpfs"
    if subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} {tmp_path}"], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs a disk of its own, which this system does not let a test mount")
    small, path = tmp_path / "small", tmp_path / "c"
    small.mkdir()
    with filled(path, documents=1_500) as opened:
        take_snapshot(opened, tmp_path / "snap")
    child = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} {small} && exec "$@"', "sh", sys.executable, "-c", FULL_DISK,
         f"{Path(__file__).parent}{os.pathsep}{Path(__file__).parents[2]}", str(small), str(path),
         str(tmp_path / "snap")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert len(texts(path)) == 1_500


def test_a_full_disk_in_the_middle_of_replacing_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        take_snapshot(opened, tmp_path / "snap")
        opened.upsert([prepared("d7", "omega", title="T7")], source_id="s")

    def full(_from: Path, to: Path) -> None:
        to.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(to))

    monkeypatch.setattr("thresher.corpus.lifecycle.snapshots.shutil.copyfile", full)
    with pytest.raises(StorageFull):
        restore_snapshot(tmp_path / "snap", path, replace=True)
    assert texts(path)["d7"] == "omega"
    assert {p.name for p in path.iterdir()} == {"lock", "corpus.db", "manifest.json", "tantivy", "chroma"}
