"""A collection on every backend: the same answers, and none is lost when Chroma is killed, frozen, moved or emptied."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from chroma_support import ChromaRun
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import Backends, load_backends
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError
from thresher.corpus.vectors import child, claim, server
from thresher.corpus.vectors.child import ChildIndex
from thresher.corpus.vectors.wire import Patience

DOCUMENTS = 120
CHILD = load_backends("child")


@pytest.fixture(scope="module")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaRun]:
    running = ChromaRun(tmp_path_factory.mktemp("server"))
    yield running
    running.kill()


def make(path: Path, backends: Backends) -> Collection:
    opened = Collection.create(path, EMBEDDER, exact_below=0, backends=backends)
    opened.upsert([prepared(f"d{i:03}", f"alpha {i} beta {i * i}") for i in range(DOCUMENTS)], source_id="s")
    assert opened.wait_for_repair(60)
    return opened


def reopen(path: Path, backends: Backends) -> Collection:
    return Collection.open(path, embedder=EMBEDDER, exact_below=0, backends=backends)


def assert_whole(opened: Collection, documents: int = DOCUMENTS) -> None:
    for i in (0, 77, documents - 1):
        own = [hit for hit in opened.search(f"alpha {i} beta {i * i}") if hit.chunk.document_id == f"d{i:03}"]
        assert own
        assert own[0].dense == pytest.approx(1.0, abs=1e-5)


def add(opened: Collection, number: int) -> None:
    opened.upsert([prepared(f"d{number:03}", f"alpha {number} beta {number * number}")], source_id="s")


def generation(opened: Collection) -> int:
    return opened._dense.progress.generation


def child_of(opened: Collection) -> int:
    index = opened._dense._chroma
    assert isinstance(index, ChildIndex)
    return index.pid


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_every_backend_gives_the_same_answers(tmp_path: Path, chroma: ChromaRun) -> None:
    answers = []
    for spec in ("in-process", "child", chroma.url):
        with make(tmp_path / spec.partition(":")[0], load_backends(spec)) as opened:
            opened.delete_documents([f"d{i:03}" for i in range(5, 15)])
            assert opened.stats().dense == "chroma"
            found = opened.search("alpha 7 beta", limit=40)
            answers.append([(hit.chunk.document_id, round(hit.dense or 0, 5), round(hit.score, 6)) for hit in found])
            assert opened.verify().ok
            exact = opened._dense._standby.level().search(EMBEDDER.embed_queries(["alpha 7"])[0], 30)
            approximate = opened._dense._nearest(EMBEDDER.embed_queries(["alpha 7"])[0], 30)
            assert [i for i, _ in exact] == [i for i, _ in approximate]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.slow
def test_child_and_in_process_take_turns_without_a_rebuild(tmp_path: Path) -> None:
    make(tmp_path / "c", load_backends("in-process")).close()
    for spec in ("child", "in-process", "child"):
        with reopen(tmp_path / "c", load_backends(spec)) as opened:
            assert opened.stats().dense == "chroma"
            assert_whole(opened)
            assert generation(opened) == 1
            assert opened.verify().ok


def test_an_index_moves_to_a_server_and_back(tmp_path: Path, chroma: ChromaRun) -> None:
    make(tmp_path / "c", load_backends("in-process")).close()
    with reopen(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert_whole(opened)  # exactly, meanwhile
        assert opened.wait_for_repair(60)
        assert generation(opened) == 2
        assert opened.stats().dense == "chroma"
        assert_whole(opened)
        assert opened.verify().ok
        assert not (tmp_path / "c" / "chroma").exists()
        add(opened, DOCUMENTS)
    with reopen(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert opened.stats().faults == ()
        assert_whole(opened, DOCUMENTS + 1)
        assert generation(opened) == 2
    with reopen(tmp_path / "c", load_backends("in-process")) as opened:
        assert "moves from http" in opened.stats().faults[0]
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.wait_for_repair(60)
        assert opened.verify().ok
        assert [p.name for p in (tmp_path / "c" / "chroma").iterdir() if p.is_dir()] == ["3"]


def test_a_killed_child_is_started_again_on_the_same_data(tmp_path: Path) -> None:
    with make(tmp_path / "c", CHILD) as opened:
        assert_whole(opened)
        first = child_of(opened)
        os.kill(first, signal.SIGKILL)
        assert_whole(opened)
        add(opened, DOCUMENTS)
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.wait_for_repair(60)
        assert child_of(opened) != first
        assert opened.stats().dense == "chroma"
        assert generation(opened) == 1
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.verify().ok
        last = child_of(opened)
    assert gone(last)
    assert sorted(p.name for p in (tmp_path / "c" / "chroma").iterdir()) == ["1", "1.log"]  # a clean end


@pytest.mark.slow
def test_a_child_is_started_again_though_nobody_asks(tmp_path: Path) -> None:
    with make(tmp_path / "c", CHILD) as opened:
        first = child_of(opened)
        os.kill(first, signal.SIGKILL)
        until(lambda: opened._dense.fault is None and opened._dense._chroma is not None and child_of(opened) != first)
        assert_whole(opened)


@pytest.mark.slow
def test_a_child_that_keeps_dying_costs_its_generation(tmp_path: Path) -> None:
    with make(tmp_path / "c", CHILD) as opened:
        for _ in range(child._DEATHS):
            assert opened.wait_for_repair(60)
            assert generation(opened) == 1
            os.kill(child_of(opened), signal.SIGKILL)
            until(lambda: opened._dense.fault is not None)
            assert_whole(opened)
        assert opened.wait_for_repair(60)
        assert generation(opened) == 2
        assert_whole(opened)
        assert opened.verify().ok
        assert [p for p in (tmp_path / "c" / "chroma").iterdir() if p.name.startswith("1.quarantined-")]


def test_a_child_that_hangs_is_ended_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", Patience(answer=1.5, change=3.0))
    with make(tmp_path / "c", CHILD) as opened:
        first = child_of(opened)
        os.kill(first, signal.SIGSTOP)
        started = time.monotonic()
        assert_whole(opened)
        assert time.monotonic() - started < 20
        assert opened.wait_for_repair(60)
        assert gone(first)
        assert_whole(opened)
        os.kill(child_of(opened), signal.SIGSTOP)
        add(opened, DOCUMENTS)  # a write finds out, too, and stands
        assert opened.wait_for_repair(60)
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.verify().ok


OWNER = """
import sys, time
from pathlib import Path
from storage_support import EMBEDDER
from thresher.corpus.backends import load_backends
from thresher.corpus.collection import Collection
opened = Collection.open(Path(sys.argv[1]), embedder=EMBEDDER, exact_below=0, backends=load_backends("child"))
opened.search("alpha")
print(opened._dense._chroma.pid, flush=True)
time.sleep(600)
"""


def killed_owner(path: Path, before: Callable[[int], None] = lambda pid: None) -> int:
    """Let another process own the collection, kill it with SIGKILL; the pid of the child that it had."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        before(pid)
        owner.kill()
    return pid


@pytest.mark.slow
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    make(tmp_path / "c", CHILD).close()
    pid = killed_owner(tmp_path / "c")
    until(lambda: gone(pid))
    with reopen(tmp_path / "c", CHILD) as opened:
        assert_whole(opened)
        assert generation(opened) == 1
        assert opened.verify().ok


@pytest.mark.parametrize("spec", ["child", pytest.param("in-process", marks=pytest.mark.slow)])
def test_an_orphan_that_hangs_is_ended_before_its_directory_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.setattr(claim, "_GRACE_SECONDS", 0.5)
    make(tmp_path / "c", CHILD).close()
    pid = killed_owner(tmp_path / "c", lambda pid: os.kill(pid, signal.SIGSTOP))
    assert not gone(pid)
    with reopen(tmp_path / "c", load_backends(spec)) as opened:
        assert_whole(opened)
        assert gone(pid)
        assert generation(opened) == 1
        assert opened.verify().ok


@pytest.mark.slow
def test_the_child_runs_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMA_API_KEY", "key-of-chroma")
    monkeypatch.setenv("SOME_MODEL_TOKEN", "token-of-a-model")
    with make(tmp_path / "c", CHILD) as opened:
        pid = child_of(opened)
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert "Max address space" in limits
        (space,) = [line.split()[3] for line in limits.splitlines() if line.startswith("Max address space")]
        assert int(space) < 2**45
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert "key-of-chroma" not in environment
        assert "token-of-a-model" not in environment


def test_a_server_that_is_down_costs_no_write_and_no_rebuild(tmp_path: Path, chroma: ChromaRun) -> None:
    with make(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert opened.stats().dense == "chroma"
        chroma.kill()
        try:
            add(opened, DOCUMENTS)
            opened.delete_documents(["d005"])
            assert_whole(opened, DOCUMENTS + 1)
            stats = opened.stats()
            assert stats.dense == "exact"
            assert "does not answer" in stats.dense_reason
            assert stats.pending == 2
            assert "does not answer" in opened.verify().problems[0]
            with pytest.raises(CorpusError, match="cannot be reached"):
                opened.rebuild()
        finally:
            chroma.start()
        assert opened.wait_for_repair(60)
        assert opened.stats().dense == "chroma"
        assert opened.stats().pending == 0
        assert generation(opened) == 1
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.verify().ok


@pytest.mark.slow
def test_a_collection_opens_while_its_server_is_down(tmp_path: Path, chroma: ChromaRun) -> None:
    make(tmp_path / "c", load_backends(chroma.url)).close()
    chroma.kill()
    try:
        with reopen(tmp_path / "c", load_backends(chroma.url)) as opened:
            assert_whole(opened)
            add(opened, DOCUMENTS)
    finally:
        chroma.start()
    with reopen(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.stats().dense == "chroma"
        assert generation(opened) == 1
        assert opened.verify().ok


@pytest.mark.slow
def test_a_server_that_hangs_costs_a_bounded_wait(
    tmp_path: Path, chroma: ChromaRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE", Patience(answer=1.5, change=3.0))
    with make(tmp_path / "c", load_backends(chroma.url)) as opened:
        chroma.freeze()
        try:
            started = time.monotonic()
            assert_whole(opened)
            add(opened, DOCUMENTS)
            assert time.monotonic() - started < 30
        finally:
            chroma.thaw()
        assert opened.wait_for_repair(60)
        assert generation(opened) == 1
        assert_whole(opened, DOCUMENTS + 1)
        assert opened.verify().ok


def remote_names(chroma: ChromaRun) -> list[str]:
    listed = httpx.get(f"{chroma.url}/api/v2/tenants/default_tenant/databases/default_database/collections")
    return [collection["name"] for collection in listed.json()]


def test_a_server_that_lost_the_index_gets_another(tmp_path: Path, chroma: ChromaRun) -> None:
    with make(tmp_path / "c", load_backends(chroma.url)) as opened:
        own = opened._store.meta("collection_id")
        (name,) = [name for name in remote_names(chroma) if own is not None and own in name]
        httpx.delete(f"{chroma.url}/api/v2/tenants/default_tenant/databases/default_database/collections/{name}")
        assert_whole(opened)
        assert opened.wait_for_repair(60)
        assert generation(opened) == 2
        assert_whole(opened)
        assert opened.verify().ok
        opened.compact()
        assert [name for name in remote_names(chroma) if own is not None and own in name] == [f"thresher-{own}-3"]


@pytest.mark.slow
def test_vectors_that_a_server_lost_are_added_again_on_opening(tmp_path: Path, chroma: ChromaRun) -> None:
    with make(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert opened._dense._chroma is not None
        opened._dense._chroma._collection.delete(ids=["3", "30"])  # type: ignore[attr-defined]
    with reopen(tmp_path / "c", load_backends(chroma.url)) as opened:
        assert_whole(opened)
        assert generation(opened) == 1
        assert opened.verify().ok


@pytest.mark.parametrize("spec", ["", "chroma", "http://", "http://host:port", "ftp://host", "http://host?colour=red"])
def test_a_spec_that_names_no_backend_is_refused(spec: str) -> None:
    with pytest.raises(CorpusError, match="use "):
        load_backends(spec)
