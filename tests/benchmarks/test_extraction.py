"""The benchmark of main-text extraction runs from end to end; on the pages it makes our reader holds its floors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "extraction.py"


def run(*arguments: object) -> str:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return done.stdout


def test_extraction(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<nav>Menu</nav><p>The ferry Alma was built in 1931.</p>")
    written = tmp_path / "extraction.json"
    table = run(tmp_path, "--seeds", 1, "--limit", 0, "--json", written)
    measured = json.loads(written.read_text(encoding="utf-8"))
    every = measured["made"]["ours"]["all"]
    assert every["recall"] > 0.99
    assert every["precision"] > 0.90
    assert every["empty"] == 0
    assert measured["made"]["ours"]["short"]["precision"] > 0.99, "the frame is larger than the text"
    assert measured["files"]["page.html"]["ours"]["words"] == 7
    assert "| short, nameless |" in table


@pytest.mark.slow
def test_slow_pages(tmp_path: Path) -> None:
    written = tmp_path / "extraction.json"
    run("--seeds", 1, "--limit", 60, "--json", written)
    for case, row in json.loads(written.read_text(encoding="utf-8"))["hostile"].items():
        assert "ended" not in row["ours"], case
