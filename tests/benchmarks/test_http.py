"""The HTTP benchmarks run from end to end: their figures mean nothing here, but their requests are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def ran(script: str, tmp_path: Path, *arguments: str) -> Any:
    written = tmp_path / "http.json"
    command = [sys.executable, str(BENCHMARKS / script), *arguments, "--json", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return json.loads(written.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_comparison(tmp_path: Path) -> None:
    measured = ran("http_load.py", tmp_path, "--clients", "1", "8", "--seconds", "1")
    assert [row["clients"] for row in measured["rows"]] == [1, 8]
    for row in measured["rows"]:
        for name in ("bare", "minimal", "model"):
            assert row[name]["requests"] > 0
            assert row[name]["failed"] == {}
            assert row[name]["p50_ms"] <= row[name]["p95_ms"] <= row[name]["p99_ms"]
        assert row["engine"]["per_s"] > 0


@pytest.mark.slow
def test_leak(tmp_path: Path) -> None:
    measured = ran("http_leak.py", tmp_path, "--requests", "80", "--bound", "200")
    assert measured["leaks"] == []
    assert [row["requests"] for row in measured["seen"]] == [100, 120, 140, 160, 180]
    assert all(row["in_flight"] == 0 for row in measured["seen"])


def test_what_is_kept_is_found() -> None:
    code = (
        "import http_leak\n"
        "before = dict(rss_mb=100.0, fds=20.0, threads=9.0, tasks=5.0, in_flight=0.0)\n"
        "assert not http_leak.leaks([before, before], 24)\n"
        "after = dict(rss_mb=130.0, fds=40.0, threads=30.0, tasks=15.0, in_flight=1.0)\n"
        "assert len(http_leak.leaks([before, after], 24)) == 5\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
