"""Every script in `benchmarks/` says what it claims, is listed, runs with `--quick`, and can be summarised."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if path.stem != "run")
PARTS = ("Compared:", "Command:", "Takes:", "Output:", "Not shown:")
CLAIMS_PROGRAM = """
import json
from support.claims import CLAIMS
print(json.dumps([claim.script for claim in CLAIMS]))
"""
VERDICTS_PROGRAM = """
from support.findings import Finding, Verdict, beside, gain, goal, told
assert goal("x", 6.0, most=5.0).verdict is Verdict.MISSED
assert goal("x", 5.0, most=5.0).verdict is Verdict.MET
assert goal("x", 0.8, least=0.85).verdict is Verdict.MISSED
assert beside("x", 4.0, 3.0, "bare").verdict is Verdict.LOSES
assert beside("x", 4.0, 3.0, "bare", less_is_better=False).verdict is Verdict.AHEAD
assert beside("x", 4.0, 2.0, "bare").beside == "bare: 2 (ours × 2.00)"
assert gain("x", {"mean": 0.03, "low": 0.01, "high": 0.05}, "one").verdict is Verdict.AHEAD
assert gain("x", {"mean": 0.03, "low": -0.01, "high": 0.07}, "one").verdict is Verdict.LEVEL
lost = gain("x", {"mean": -0.03, "low": -0.05, "high": -0.01}, "one")
assert lost.verdict is Verdict.LOSES and lost.bad and lost.figure == "-3.0 (-5.0 to -1.0)"
assert not told("x", "1").bad
"""
SUMMARY_PROGRAM = """
import json, sys
from pathlib import Path
import run
run.summary(Path(sys.argv[1]), json.loads(sys.argv[2]))
"""


def in_benchmarks(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_docstring(script: Path) -> None:
    documentation = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    claim, _, rest = documentation.partition("\n\n")
    assert claim.endswith("."), "the claim is a sentence"
    at = [rest.find(part) for part in PARTS]
    assert -1 not in at, [part for part, place in zip(PARTS, at, strict=True) if place < 0]
    assert at == sorted(at)
    assert f"python benchmarks/{script.name}" in rest
    assert re.search(r"Takes: .*\d+ (second|minute)", rest)


def test_every_script_is_a_claim_and_listed() -> None:
    names = {path.stem for path in SCRIPTS}
    assert set(json.loads(in_benchmarks(CLAIMS_PROGRAM))) == names
    table = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)\.py` \|", table, re.MULTILINE)) == names


def test_support_is_listed() -> None:
    table = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    modules = {path.stem for path in (BENCHMARKS / "support").glob("*.py")} - {"__init__"}
    assert [name for name in sorted(modules) if f"`{name}" not in table] == []


def test_verdicts() -> None:
    in_benchmarks(VERDICTS_PROGRAM)


def test_summary_is_made_of_the_figures(tmp_path: Path) -> None:
    """What was missed is told, what cannot be read or was not run costs no other row."""
    (tmp_path / "startup.json").write_text(json.dumps({"commands": {"thresher --help": {"p50": 730.0}}}))
    (tmp_path / "ingestion.json").write_text(json.dumps({"pipelines": [{"embedder": "minilm", "share": 0.9}]}))
    (tmp_path / "load.json").write_text("{}")
    runs = {
        "startup": {"status": "ok", "seconds": 3},
        "scale": {"status": "left out", "why": "no musique in data", "seconds": 0},
    }
    in_benchmarks(SUMMARY_PROGRAM, str(tmp_path), json.dumps(runs))
    page = (tmp_path / "summary.md").read_text(encoding="utf-8")
    lost, rest = page.split("## Where we lose")[1].split("\n## ", 1)
    assert "thresher --help, median ms: 730, missed (≤ 500)" in lost
    assert "minilm" not in lost
    assert "| 90% | ≥ 85% |  | met |" in rest
    assert "`load.py`: its figures cannot be read" in rest
    assert "`scale.py`: no musique in data" in rest
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["findings"]
    assert [row["verdict"] for row in found] == ["met", "missed"]


def test_without_sets_a_full_run_leaves_out_what_needs_them(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--data", str(tmp_path / "none")]
    command += ["--out", str(tmp_path / "out"), "--only", "scale", "agent"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## Not measured" in done.stdout
    assert "`agent.py`: no musique, hotpotqa" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_quick_run(script: Path, tmp_path: Path) -> None:
    """From end to end, with the packaged sample: the figures mean nothing here."""
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--only", script.stem, "--out", str(tmp_path)]
    environment = {**os.environ, "THRESHER_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    log = (tmp_path / f"{script.stem}.log").read_text(encoding="utf-8")
    assert done.returncode == 0, log[-4_000:] + done.stderr
    left = json.loads((tmp_path / f"{script.stem}.json").read_text(encoding="utf-8"))
    assert left["benchmark"] == script.stem
    assert left["machine"]["cores"] >= 1
    assert left["parameters"]["quick"] is True
    assert left["seconds"] > 0
    assert log.splitlines()[0].startswith("cpu "), "machine first"
    assert log.splitlines()[1].startswith("quick True"), "then parameters"
    assert "Not measured" not in done.stdout
    assert f"## {script.name}" in done.stdout
