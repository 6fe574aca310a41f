"""The benchmark of rollouts runs from end to end: its figures mean nothing here, but all its work is done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "rollouts.py"


@pytest.mark.slow
def test_rollouts(tmp_path: Path) -> None:
    written = tmp_path / "rollouts.json"
    sizes = ["--seeds", "2", "--steps", "3", "--groups", "2", "--size", "2", "--turn", "0.01", "--staleness", "2"]
    command = [
        sys.executable,
        str(SCRIPT),
        *sizes,
        "--train",
        "0.5",
        "--tails",
        "lognormal",
        "pareto",
        "--json",
        str(written),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    ways = json.loads(written.read_text(encoding="utf-8"))["ways"]
    assert [(way["tail"], way["staleness bound"]) for way in ways] == [
        ("lognormal", 0), ("lognormal", 2), ("pareto", 0), ("pareto", 2)
    ]  # fmt: skip
    for way in ways:
        assert len(way["runs"]) == 2
        assert 0 < way["utilisation"] <= 1
        assert way["stale"] == 0
        assert way["rollouts_per_s"] > 0
        synchronous = way["staleness bound"] == 0
        assert not synchronous or way["speedup"]["mean"] == pytest.approx(1)
        assert not synchronous or way["partial"] == way["staleness"] == 0
        assert not synchronous or way["lengths"] == pytest.approx(1), "file order, step by step"
    assert "speedup (95 %)" in done.stdout
