"""kill -9 at random moments of writing: what was acknowledged is there, whole, through every door.

`THRESHER_TEST_KILLS` (50) is how many kills all loops make together, those of test_ingest_crash.py included.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash_support import Nursery
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import load_backends
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status

WRITER = Path(__file__).with_name("crash_writer.py")
SEED = int(os.environ.get("THRESHER_TEST_SEED", "20261130"))
KILLS = int(os.environ.get("THRESHER_TEST_KILLS", "50"))
SHARES = {"small": 0.4, "child": 0.2, "large": 0.2}  # the rest is killed while it ingests

_spec = importlib.util.spec_from_file_location("crash_writer", WRITER)
assert _spec is not None
assert _spec.loader is not None
crash_writer = importlib.util.module_from_spec(_spec)
sys.modules["crash_writer"] = crash_writer
_spec.loader.exec_module(crash_writer)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def write_until_killed(
    nursery: Nursery, path: Path, mode: str, seed: int, first: int, rng: random.Random
) -> tuple[int, str]:
    """Run the writer from write `first` on, kill it at a random moment.

    Returns the last acknowledged write, and what was going on.
    """
    while_opening = rng.random() < 0.2
    child = nursery.start(WRITER, [str(path), mode, str(seed), str(first)])
    lines: list[str] = []
    if while_opening:
        time.sleep(rng.uniform(0, 1.5))
    else:
        assert child.stdout.readline() == "ready\n"
        lines = [child.stdout.readline() for _ in range(rng.randint(0, 8))]
        time.sleep(rng.uniform(0, 0.15))
    child.kill()
    lines += child.stdout.read().splitlines()
    assert child.wait() == -signal.SIGKILL
    acknowledged = max([first - 1, *(int(line.split()[1]) for line in lines if line.startswith("ack "))])
    return acknowledged, "opening" if while_opening else "writing"


@contextmanager
def warnings_of(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the corpus logs as a warning meanwhile."""
    said: list[str] = []
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="thresher.corpus"):
        yield said
    said += [record.getMessage() for record in caplog.records]


def check(path: Path, mode_name: str, seed: int, acknowledged: int, rng: random.Random) -> int:
    """Everything acknowledged is there and nothing is half there; returns how many writes the record holds."""
    mode = crash_writer.MODES[mode_name]
    with crash_writer.opened(path, mode) as opened:
        texts = {info.id: opened.text(info.id) for info in opened.documents()}
        sources = {source.id: source.content_hash for source in opened.sources()}
        models = {n: crash_writer.model_after(mode, seed, n) for n in (acknowledged, acknowledged + 1)}
        applied = [n for n, model in models.items() if (model.texts, model.sources) == (texts, sources)]
        assert applied, f"the record holds neither write {acknowledged} nor the one after, or only a part of it"
        model = models[applied[0]]
        assert {source.status for source in opened.sources()} <= {Status.INDEXED}
        names = list(texts)
        if mode.base:
            recent = [
                name for n in range(applied[0], 0, -1) for name, _ in crash_writer.write_of(mode, seed, n).documents
            ]
            names = sorted({*(name for name in recent[:25] if name in texts), *rng.sample(names, 10)})
        for name in names:
            found_by_every_door(opened, name, texts[name])
        for name, text in rng.sample(sorted(model.dead.items()), min(8, len(model.dead))):
            marker = text.split()[0]
            assert opened.grep(marker) == []
            assert name not in {hit.chunk.document_id for hit in opened.search(marker, limit=100)}
        for hit in opened.search("part1 says", limit=200):
            assert hit.chunk.text in texts[hit.chunk.document_id]
        assert opened.wait_for_repair(120)
        report = opened.verify()
        assert report.ok, report.problems
        stats = opened.stats()
        assert (stats.pending, stats.faults, stats.dense) == (0, (), "chroma")
        return int(applied[0])


def found_by_every_door(opened: Collection, name: str, text: str) -> None:
    chunks = opened.read(name)
    assert "".join(chunk.text for chunk in chunks) == text
    for chunk in {chunks[0].id: chunks[0], chunks[-1].id: chunks[-1]}.values():
        hits = {hit.chunk.id: hit for hit in opened.search(chunk.text, limit=20)}
        assert hits[chunk.id].dense == pytest.approx(1.0, abs=1e-4)
    marker = text.split()[0]  # says which write it comes from; the last chunk may be a mere full stop
    assert {hit.chunk.id for hit in opened.search(marker, limit=100) if hit.bm25 is not None} >= {chunks[0].id}
    assert opened.grep(marker, limit=1)[0].chunk.id == chunks[0].id


def create(path: Path, mode_name: str) -> None:
    mode = crash_writer.MODES[mode_name]
    with Collection.create(path, EMBEDDER, backends=load_backends(mode.backend)) as opened:
        base = crash_writer.base_texts(mode)
        with opened.bulk():
            for source in sorted({crash_writer.source_of(name) for name in base}):
                own = [prepared(n, text, size=60) for n, text in base.items() if crash_writer.source_of(n) == source]
                opened.upsert(own, source_id=source)
    # A large one is killed while its first Chroma index is being built, too.


def rounds(nursery: Nursery, path: Path, mode: str, count: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(f"{SEED} {mode}")
    create(path, mode)
    applied = 0
    for number in range(count):
        acknowledged, when = write_until_killed(nursery, path, mode, SEED, applied + 1, rng)
        with warnings_of(caplog) as said:
            applied = check(path, mode, SEED, acknowledged, rng)
        print(f"{mode}, seed {SEED}, kill {number} while {when}: {acknowledged} acknowledged, {applied} applied {said}")
    assert applied > count / 2  # it did write


def test_three_kills(nursery: Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rounds(nursery, tmp_path / "c", "small", 3, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SHARES)
def test_many_kills(nursery: Nursery, tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    rounds(nursery, tmp_path / "c", mode, max(1, round(KILLS * SHARES[mode])), caplog)
