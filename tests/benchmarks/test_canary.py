"""The benchmark of the canary runs from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "canary.py"


def test_the_benchmark_runs(tmp_path: Path) -> None:
    written = tmp_path / "canary.json"
    sizes = ["--runs", "20", "--pool", "200", "--maximum", "300"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *sizes, "--json", str(written)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    cases = json.loads(written.read_text())["cases"]
    assert len(cases) == done.stdout.count("\n| ") - 1
    for rates in cases.values():
        assert rates["promoted"] + rates["rolled_back"] + rates["withdrawn"] == 20
