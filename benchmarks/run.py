"""All claims: runs their scripts one after another and writes what they come to, with where we lose.

    python benchmarks/run.py [--quick] [--data DIR] [--only SCRIPT…] [--out FOLDER]

Each script runs in a process of its own, writes FOLDER/SCRIPT.json and FOLDER/SCRIPT.log, and may fail or take too long
without costing the others. FOLDER/summary.md has a row for each figure with its goal, its competitor and a verdict that
is computed from the JSON; FOLDER/summary.json has the same as data. `--only` runs some again, and the summary is of all
that the folder holds; `--only` without a name runs none and writes the summary again.

A full run wants the sets (`--data`, default ../shared/data beside the repository) and takes about an hour on two quiet
cores, 5 minutes more the first time, when sets are indexed into THRESHER_HOME. `--quick` needs no data and takes about
10 minutes; its figures mean little. Ends with status 1 where a script failed. Missing a goal is no failure.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.claims import CLAIMS, Claim
from support.findings import Finding, Verdict
from support.machine import machine, told

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data"
RUNS = "runs.json"


def main() -> int:
    """Run, summarise; the exit status."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [claim.script for claim in CLAIMS] if options.only is None else options.only
    runs: dict[str, Any] = json.loads(_read(options.out / RUNS) or "{}")
    for claim in CLAIMS:
        if claim.script in names:
            runs[claim.script] = ran(claim, options)
            _write(options.out / RUNS, json.dumps(runs, indent=1) + "\n")
    summary(options.out, runs)
    print(_read(options.out / "summary.md"))
    return int(any(run["status"] not in ("ok", "left out") for run in runs.values()))


def ran(claim: Claim, options: argparse.Namespace) -> dict[str, Any]:
    """Run one script; how that went. What it left before goes, so that no summary mixes runs."""
    written, log = options.out / f"{claim.script}.json", options.out / f"{claim.script}.log"
    written.unlink(missing_ok=True)
    work = options.out / "work"
    command = [sys.executable, str(HERE / f"{claim.script}.py"), "--json", str(written)]
    if options.quick:
        command += ["--quick", *(["-o", str(work / "quick-reranker")] if claim.script == "train_reranker" else [])]
    elif missing := [name for name in claim.needs if not (options.data / name).is_dir()]:
        return {"status": "left out", "why": f"no {', '.join(missing)} in {options.data}", "seconds": 0}
    else:
        command += claim.arguments(options.data, work)
    print(f"{time.strftime('%H:%M:%S')} {claim.script}", flush=True)
    started = time.perf_counter()
    run: dict[str, Any] = {"at": machine()["at"], "load": machine()["load_average"], "quick": options.quick}
    try:
        with log.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=60 * options.timeout, check=False
            )
        run["status"] = "ok" if done.returncode == 0 and written.exists() else f"status {done.returncode}"
    except subprocess.TimeoutExpired:
        run["status"] = f"ended after {options.timeout:g} minutes"
    return {**run, "seconds": round(time.perf_counter() - started)}


def summary(folder: Path, runs: dict[str, Any]) -> None:
    """`summary.md` and `summary.json`, of the figures that the folder holds."""
    found: dict[str, list[Finding]] = {}
    broken: dict[str, str] = {}
    for claim in CLAIMS:
        text = _read(folder / f"{claim.script}.json")
        if not text:
            continue
        try:
            found[claim.script] = list(claim.read(json.loads(text)))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            broken[claim.script] = f"its figures cannot be read: {type(error).__name__} {error}"
    _write(folder / "summary.md", markdown(found, broken, runs))
    plain = [
        {"script": script, "what": f.what, "figure": f.figure, "goal": f.goal, "beside": f.beside, "verdict": f.verdict}
        for script, own in found.items()
        for f in own
    ]
    _write(folder / "summary.json", json.dumps({"runs": runs, "findings": plain}, indent=1, ensure_ascii=False) + "\n")


def markdown(found: dict[str, list[Finding]], broken: dict[str, str], runs: dict[str, Any]) -> str:
    """The page."""
    every = [finding for own in found.values() for finding in own]
    counts = ", ".join(f"{sum(f.verdict is kind for f in every)} {kind}" for kind in Verdict)
    lines = ["# Benchmarks", "", told(machine()), "", f"{len(every)} figures: {counts}.", ""]
    if any(run.get("quick") for run in runs.values()):
        lines += ["**Quick runs are among these: they show that the scripts work, and no figure to quote.**", ""]
    lines += ["## Where we lose", ""]
    lines += [_bad(script, f) for script, own in found.items() for f in own if f.bad] or ["Nothing was missed or lost."]
    for script, own in found.items():
        run = runs.get(script, {})
        lines += ["", f"## {script}.py", "", claim_of(HERE / f"{script}.py"), ""]
        lines += [f"{run.get('at', '')}, {run.get('seconds', '?')} s, load {run.get('load', '?')} before it.", ""]
        lines += ["| figure | measured | goal | beside | verdict |", "|---|---|---|---|---|"]
        lines += [f"| {f.what} | {f.figure} | {f.goal} | {f.beside} | {f.verdict} |" for f in own]
    gone = {name: run.get("why", run["status"]) for name, run in runs.items() if run["status"] != "ok"} | broken
    if gone:
        lines += ["", "## Not measured", ""]
        lines += [f"- `{name}.py`: {why} (see {name}.log)" for name, why in gone.items()]
    return "\n".join(lines) + "\n"


def claim_of(script: Path) -> str:
    """The first sentence of a script's docstring."""
    documentation = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return " ".join(documentation.split("\n\n")[0].split())


def _bad(script: str, finding: Finding) -> str:
    against = finding.goal if finding.verdict is Verdict.MISSED else finding.beside
    return f"- {finding.what}: {finding.figure}, {finding.verdict} ({against}); `{script}.py`"


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small runs on the packaged sample: do the scripts work?")
    parser.add_argument("--only", nargs="*", choices=[claim.script for claim in CLAIMS], metavar="SCRIPT")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the sets")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="FOLDER")
    parser.add_argument("--timeout", type=float, default=30, metavar="MINUTES", help="for one script")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
