"""A large collection whose owner was killed: it answers and takes writes while Chroma is checked in the background."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.vectors import local, managed
from thresher.corpus.vectors.chroma import ChromaIndex
from thresher.corpus.vectors.files import ChromaUnusable

DOCUMENTS = 100


@pytest.fixture
def left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collection of which Chroma was not closed, has lost a vector and holds a stray one; nothing is too small."""
    monkeypatch.setattr(managed, "CHECKED_ASIDE", 0)
    opened = Collection.create(tmp_path / "c", EMBEDDER, exact_below=0)
    opened.upsert([prepared(f"d{i:03}", f"alpha {i} beta {i * i}") for i in range(DOCUMENTS)], source_id="s")
    index = opened._dense._chroma
    assert isinstance(index, ChromaIndex)
    index.apply(add=[999_999], vectors=EMBEDDER.embed_passages(["stray"]), remove=[7])
    index.abandon()
    opened._dense._chroma = None
    opened.close()
    return tmp_path / "c"


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What the check waits for."""
    go, real = threading.Event(), ChromaIndex

    def waiting(directory: Path) -> ChromaIndex:
        assert go.wait(30)
        return real(directory)

    monkeypatch.setattr(local, "ChromaIndex", waiting)
    return go


def found(opened: Collection, number: int) -> bool:
    hits = opened.search(f"alpha {number} beta {number * number}", limit=DOCUMENTS)
    own = [hit for hit in hits if hit.chunk.document_id == f"d{number:03}"]
    return bool(own) and own[0].dense == pytest.approx(1.0, abs=1e-5)


def test_it_answers_and_takes_writes_while_it_is_checked(left_open: Path, hold: threading.Event) -> None:
    with Collection.open(left_open, embedder=EMBEDDER, exact_below=0) as opened:
        assert found(opened, 6)
        assert "is being checked" in opened.stats().dense_reason
        opened.upsert([prepared("d500", "alpha 500 beta 250000")], source_id="s")
        opened.delete_documents(["d003"])
        assert found(opened, 500)
        assert not found(opened, 3)
        hold.set()
        assert opened.wait_for_repair(30)
        assert opened.stats().dense == "chroma"
        assert opened._dense.progress.generation == 1
        assert found(opened, 6)
        assert found(opened, 500)
        assert not found(opened, 3)
        index = opened._dense._chroma
        assert index is not None
        assert index.ids() == opened._dense._follower.vector_ids()
        assert opened.verify().ok


def test_a_write_comes_first(left_open: Path, hold: threading.Event) -> None:
    with Collection.open(left_open, embedder=EMBEDDER, exact_below=0) as opened:
        opened.upsert([prepared("d500", "alpha 500 beta 250000")], source_id="s")
        hold.set()
        assert opened.wait_for_repair(30)
        assert found(opened, 500)
        assert opened.verify().ok


def test_closing_waits_for_the_check_and_then_leaves_it_closed(left_open: Path) -> None:
    with Collection.open(left_open, embedder=EMBEDDER, exact_below=0) as opened:
        assert found(opened, 6)
    assert not list((left_open / "chroma").glob("*.open"))


def test_verify_waits_for_the_check(left_open: Path) -> None:
    with Collection.open(left_open, embedder=EMBEDDER, exact_below=0) as opened:
        assert found(opened, 6)
        assert opened.verify().ok
        assert opened.stats().dense == "chroma"


def test_what_the_check_finds_damaged_is_built_anew(left_open: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(directory: Path) -> ChromaIndex:
        monkeypatch.undo()
        raise ChromaUnusable("a test says so")

    monkeypatch.setattr(local, "ChromaIndex", damaged)
    monkeypatch.setattr(managed, "CHECKED_ASIDE", 0)
    with Collection.open(left_open, embedder=EMBEDDER, exact_below=0) as opened:
        assert found(opened, 6)
        assert opened.wait_for_repair(30)
        assert opened._dense.progress.generation == 2
        assert opened.verify().ok
