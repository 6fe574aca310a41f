"""kill -9 at random moments of writing: what was acknowledged is there, whole, through every door."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from storage_support import EMBEDDER

from thresher.corpus.collection import Collection

WRITER = Path(__file__).with_name("crash_writer.py")
SEED = 20261130

_spec = importlib.util.spec_from_file_location("crash_writer", WRITER)
assert _spec is not None
assert _spec.loader is not None
crash_writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash_writer)


def write_until_killed(path: Path, seed: int, first: int, rng: random.Random) -> int:
    """Run the writer from write `first` on, kill it at a random moment; returns the last acknowledged write."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(path), str(seed), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        seen = [child.stdout.readline() for _ in range(rng.randint(0, 6))]
        time.sleep(rng.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        lines = [*seen, *child.stdout.read().splitlines()]
    return max([first - 1, *(int(line.split()[1]) for line in lines if line.startswith("ack "))])


def check(path: Path, seed: int, acknowledged: int) -> int:
    """Everything acknowledged is there and nothing is half there; returns how many writes the record holds."""
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        applied = opened.stats().last_seq
        assert applied in (acknowledged, acknowledged + 1)
        model = crash_writer.model_after(seed, applied)
        assert {info.id for info in opened.documents()} == set(model)
        for name, text in model.items():
            chunks = opened.read(name)
            assert "".join(chunk.text for chunk in chunks) == text == opened.text(name)
            for chunk in (chunks[0], chunks[-1]):
                hits = {hit.chunk.id: hit for hit in opened.search(chunk.text, limit=20)}
                assert hits[chunk.id].dense == pytest.approx(1.0, abs=1e-4)
            marker = text.split()[0]  # says which write it comes from; the last chunk may be a mere full stop
            assert {hit.chunk.id for hit in opened.search(marker, limit=100) if hit.bm25 is not None} >= {chunks[0].id}
            assert opened.grep(marker, limit=1)[0].chunk.id == chunks[0].id
        for hit in opened.search("part1 says", limit=500):
            assert hit.chunk.text in model[hit.chunk.document_id]
        report = opened.verify()
        assert report.ok, report.problems
        assert opened.stats().pending == 0
        return applied


def rounds(path: Path, count: int) -> None:
    rng = random.Random(SEED)
    Collection.create(path, EMBEDDER).close()
    applied = 0
    for number in range(count):
        acknowledged = write_until_killed(path, SEED, applied + 1, rng)
        applied = check(path, SEED, acknowledged)
        print(f"seed {SEED} round {number}: {acknowledged} acknowledged, {applied} applied")
    assert applied > count  # it did write


def test_three_kills(tmp_path: Path) -> None:
    rounds(tmp_path / "c", 3)


@pytest.mark.slow
def test_twenty_kills(tmp_path: Path) -> None:
    rounds(tmp_path / "c", 20)
