"""The load benchmark runs from end to end, on few searches: its figures mean nothing here, but its searches do end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "load.py"


@pytest.mark.slow
def test_load(tmp_path: Path) -> None:
    written = tmp_path / "load.json"
    sizes = ["--searches", "6", "--turns", "4", "--long", "24", "--repeat", "1", "--latency", "0.01"]
    command = [sys.executable, str(SCRIPT), *sizes, "--json", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    measured = json.loads(written.read_text(encoding="utf-8"))
    for tools in ("real", "instant"):
        row = measured[tools]
        assert (row["finished"], row["recoveries"], row["turns"]) == (6, 0, 24)
        assert row["own_ms_per_turn"] > 0
    assert measured["real"]["tool_ms_per_turn"] > 0
    assert measured["growing"]["late_tokens"] > 2 * measured["steady"]["late_tokens"]
    assert "ratio" in done.stdout
