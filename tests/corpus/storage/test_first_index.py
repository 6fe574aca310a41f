"""A small collection has no Chroma index; the write that outgrows exact search has the first one built beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.vectors.following import Follower
from thresher.corpus.vectors.managed import BUILT_AT_ONCE

LINE = BUILT_AT_ONCE + 200


def write(opened: Collection, first: int, last: int) -> None:
    opened.upsert([prepared(f"d{i:05}", f"alpha {i} beta {i * i}") for i in range(first, last)], source_id="s")


def assert_found(opened: Collection, number: int) -> None:
    hits = {hit.chunk.document_id: hit for hit in opened.search(f"alpha {number} beta {number * number}")}
    assert hits[f"d{number:05}"].dense == pytest.approx(1.0, abs=1e-5)


def no_chroma(path: Path) -> bool:
    return not any(entry.is_dir() for entry in (path / "chroma").glob("*"))


def test_below_the_line_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as opened:
        write(opened, 0, 50)
        opened.delete_documents(["d00003"])
        assert_found(opened, 7)
        opened.rebuild()
        opened.compact()
        assert opened.verify().ok
        stats = opened.stats()
        assert (stats.dense, stats.faults, stats.pending) == ("exact", (), 0)
        with opened._store.read() as connection:  # nothing waits for an index that is not there
            assert connection.execute("SELECT count(*) FROM tombstones").fetchone() == (0,)
    assert no_chroma(path)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert_found(opened, 7)
    assert no_chroma(path)


def test_a_little_one_is_built_by_who_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as opened:
        write(opened, 0, 50)
    with Collection.open(path, embedder=EMBEDDER, exact_below=50) as opened:
        assert_found(opened, 7)
        assert opened.stats().dense == "chroma"
        assert opened._dense._chroma is not None
        opened.delete_documents([f"d{i:05}" for i in range(40)])  # followed from now on, however small it gets
        assert opened.stats().dense == "exact"
        assert opened._dense._chroma.count() == 10
        assert opened.verify().ok


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Builds wait for this event behind their first page."""
    event = threading.Event()
    pages = Follower.pages

    def slow(self, connection, first):  # type: ignore[no-untyped-def]
        for number, page in enumerate(pages(self, connection, first)):
            if number and threading.current_thread().name == "thresher-dense-repair":
                event.wait(30)
            yield page

    monkeypatch.setattr(Follower, "pages", slow)
    return event


def test_writes_and_deletes_meanwhile_are_not_lost(tmp_path: Path, held: threading.Event) -> None:
    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=LINE) as opened:
        write(opened, 0, LINE - 10)
        assert opened.stats().dense_reason == f"fewer than {LINE} chunks"
        write(opened, LINE - 10, LINE + 10)
        assert opened.stats().dense_reason == "the Chroma index is being built"
        write(opened, LINE + 10, LINE + 40)
        opened.delete_documents(["d00005", f"d{LINE:05}"])
        for number in (7, LINE - 5, LINE + 20):
            assert_found(opened, number)
        held.set()
        assert opened.wait_for_repair(60)
        stats = opened.stats()
        assert (stats.dense, stats.faults, stats.pending) == ("chroma", (), 0)
        assert opened._dense._chroma is not None
        assert opened._dense._chroma.ids() == opened._dense._follower.vector_ids()
        for number in (7, LINE - 5, LINE + 20):
            assert_found(opened, number)
        assert opened.verify().ok


def test_an_interrupted_build_starts_again_with_the_next_search(tmp_path: Path, held: threading.Event) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER, exact_below=LINE) as opened:
        write(opened, 0, LINE + 40)
        threading.Timer(0.2, held.set).start()
    with Collection.open(path, embedder=EMBEDDER, exact_below=LINE) as opened:
        assert opened._dense.progress.generation == 0
        assert_found(opened, 7)
        assert opened.wait_for_repair(60)
        assert opened.stats().dense == "chroma"
        assert opened.verify().ok


def test_verify_does_not_complain_of_one_that_is_being_built(tmp_path: Path, held: threading.Event) -> None:
    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=LINE) as opened:
        write(opened, 0, LINE + 40)
        threading.Timer(0.2, held.set).start()
        assert opened.verify().ok
        assert opened.stats().dense == "chroma"


def test_a_build_that_fails_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"

    def broken(*_: object) -> None:
        raise RuntimeError("no Chroma today")

    with monkeypatch.context() as patched:
        patched.setattr("thresher.corpus.vectors.local.LocalHome.fresh", broken)
        with Collection.create(path, EMBEDDER, exact_below=LINE) as opened:
            write(opened, 0, LINE + 40)
            assert not opened.wait_for_repair(60)
            assert "no Chroma today" in opened.stats().faults[0]
            assert_found(opened, 7)
    with Collection.open(path, embedder=EMBEDDER, exact_below=LINE) as opened:
        assert opened.wait_for_repair(60)
        assert opened.stats().dense == "chroma"
        assert opened.verify().ok


def test_warming_opens_or_builds_what_a_search_would_wait_for(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as opened:
        write(opened, 0, LINE)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        opened.warm()
        assert no_chroma(path)
    with Collection.open(path, embedder=EMBEDDER, exact_below=LINE) as opened:
        opened.warm()
        assert opened.wait_for_repair(60)
    with Collection.open(path, embedder=EMBEDDER, exact_below=LINE) as opened:
        assert opened._dense._chroma is None
        opened.warm()
        assert opened._dense._chroma is not None
    opened.warm()  # closed meanwhile: nothing to say
