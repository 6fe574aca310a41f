"""kill -9 at every step of building an index beside, and of switching to it and back."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage_support import EMBEDDER, prepared, source

from thresher.corpus.collection import Collection
from thresher.corpus.lifecycle.reindex import build_next, discard_next, drop_previous, switch_back, switch_to_next
from thresher.corpus.manifest import read_manifest
from thresher.corpus.paths import is_collection

REINDEXER = Path(__file__).with_name("crash_reindexer.py")
_spec = importlib.util.spec_from_file_location("crash_reindexer", REINDEXER)
assert _spec is not None
assert _spec.loader is not None
crash_reindexer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash_reindexer)
Other = crash_reindexer.Other

DOCUMENTS = 30
CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync")
"""What a switch asks of the file system; it is killed before each one of them in turn."""


def built(path: Path, documents: int = DOCUMENTS) -> None:
    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert([prepared(f"d{i}", f"alpha {i} beta", title=f"T{i}") for i in range(documents)], source_id="s")
        opened.finish_source(source("s"), keep={f"d{i}" for i in range(documents)})


def check(path: Path, documents: int = DOCUMENTS) -> str:
    """Whichever index serves is whole; returns its embedder."""
    assert is_collection(path)
    assert {p.name for p in path.iterdir()} <= {"lock", "corpus.db", "manifest.json", "tantivy", "chroma", "next",
                                                "previous", "switch.json", "switch.json.new", "leaving", "next.gone",
                                                "previous.gone", "corpus.db-wal", "corpus.db-shm"}  # fmt: skip
    # A first opener without the right model must not be in the way: what is there is settled before that is told.
    try:
        Collection.open(path, embedder=EMBEDDER).close()
        embedder: Any = EMBEDDER
    except Exception:
        embedder = Other()
    with Collection.open(path, embedder=embedder) as opened:
        assert opened.stats().documents == opened.chunk_count == documents
        assert opened.text("d7") == "alpha 7 beta"
        hit = opened.search("T7\nalpha 7 beta")[0]
        assert (hit.chunk.document_id, hit.bm25 is not None) == ("d7", True)
        assert hit.dense == pytest.approx(1.0, abs=1e-4)
        assert opened.source("s") is not None
        report = opened.verify()
        assert report.ok, report.problems
    left = {p.name for p in path.iterdir()}
    assert left <= {"lock", "corpus.db", "manifest.json", "tantivy", "chroma", "next", "previous"}
    return str(embedder.info.spec)


def die_before_call(number: int, function: Callable[[], object]) -> bool:
    """Run it in a forked child that is killed before its `number`-th call to the file system; whether it was."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            left = number

            def counted(call: Callable[..., Any]) -> Callable[..., Any]:
                def run(*args: Any, **kwargs: Any) -> Any:
                    nonlocal left
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    return call(*args, **kwargs)

                return run

            for name in CALLS:
                setattr(os, name, counted(getattr(os, name)))
            function()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def die_everywhere(template: Path, work: Path, function: Callable[[Path], object], every: int) -> list[str]:
    """Kill it before every `every`-th call to the file system; returns the embedder that served after each."""
    served = []
    for number in range(0, 1000, every):
        shutil.copytree(template, work)
        killed = die_before_call(number, lambda: function(work))
        served.append(check(work))
        if not killed:
            return served
        shutil.rmtree(work)
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_switch_is_old_or_new_wherever_it_dies(tmp_path: Path, every: int) -> None:
    template, work = tmp_path / "t", tmp_path / "c"
    built(template)
    with Collection.open(template, embedder=EMBEDDER) as opened:
        build_next(opened, Other())
    served = die_everywhere(template, work, switch_to_next, every)
    assert served == sorted(served, reverse=True)  # the old one, and from some point on the new one
    assert set(served) == {"test-hash", "other"}
    # The last one went through: from there, back again.
    shutil.rmtree(template)
    work.rename(template)
    served = die_everywhere(template, work, switch_back, every)
    assert served == sorted(served)
    assert set(served) == {"test-hash", "other"}
    assert switch_back(work).embedder == "other"
    check(work)


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_removing_an_index_beside_leaves_all_or_nothing_of_it(tmp_path: Path, every: int) -> None:
    template, work = tmp_path / "t", tmp_path / "c"
    built(template)
    with Collection.open(template, embedder=EMBEDDER) as opened:
        build_next(opened, Other())
    for number in range(0, 1000, every):
        shutil.copytree(template, work)
        killed = die_before_call(number, lambda: discard_next(work))
        check(work)
        if (work / "next").exists():
            assert switch_to_next(work).embedder == "other"
            check(work)
            assert drop_previous(work)
        assert {p.name for p in work.iterdir()} <= {"lock", "corpus.db", "manifest.json", "tantivy", "chroma"}
        shutil.rmtree(work)
        if not killed:
            return
    raise AssertionError("it never came to its end")


def reindex_until(path: Path, step: str, number: int) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, str(REINDEXER), str(path), step, str(number)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL or child.stdout == "done\n", child.stderr
    return child.returncode == -signal.SIGKILL


def interrupted(path: Path, steps: list[tuple[str, int]]) -> None:
    """Build with a kill at each of the steps in turn, and a change to the collection after each kill."""
    built(path, 700)
    killed = 0
    for round_number, (step, number) in enumerate(steps):
        killed += reindex_until(path, step, number)
        with Collection.open(path, embedder=EMBEDDER) as opened:
            assert opened.search("alpha 7 beta")[0].dense is not None
            # As many as there were, so that `check` may count on it: one goes, one comes, one changes.
            gone = 699 - round_number
            opened.delete_documents([f"d{gone}"])
            opened.upsert([prepared(f"e{gone}", f"gamma {round_number}")], source_id="s")
            opened.upsert([prepared("d1", f"delta {round_number}")], source_id="s")
    assert killed == len(steps)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        build_next(opened, Other())
        expected = {info.id: opened.text(info.id) for info in opened.documents()}
    switch_to_next(path)
    assert check(path, 700) == "other"
    assert read_manifest(path).embedder == Other().info
    with Collection.open(path, embedder=Other()) as opened:
        assert {info.id: opened.text(info.id) for info in opened.documents()} == expected


def test_a_build_goes_on_after_three_kills(tmp_path: Path) -> None:
    interrupted(tmp_path / "c", [("laid out", 1), ("written", 1), ("level", 1)])


@pytest.mark.slow
def test_a_build_goes_on_after_a_kill_at_every_step(tmp_path: Path) -> None:
    interrupted(tmp_path / "c", [("embedded", 2), *((step, 1) for step in crash_reindexer.STEPS[1:])])
