"""A collection of 100,000 or 1,000,000 passages, measured beside bare indexes in the same run.

    python benchmarks/scale.py --texts DIR --keep WORK --chunks 100000 1000000

`--texts` names a folder with `corpus.jsonl` files in it (see README.md), or `.md` and `.txt`; their sentences are
recombined to as many passages as asked for. No model is involved but for the ingestion rates: vectors are made up
(synthetic.py says how).
`--keep` holds a folder a size; what is there is measured again rather than built again, and a build that was
interrupted goes on. Each system and part is measured in a process of its own.

Writes results to `--json` (and after each part, so that an interrupted run leaves what it had), a table to standard
output, and plots to `--plots`. Ends with status 1 when a part could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench_set import BenchSet
from building import build
from report import plots, table
from synthetic import Synthesizer
from timing import in_child

HERE = Path(__file__).parent
PARTS = ("opening", "searching", "grepping", "changing", "killed")
SYSTEMS = ("brute", "own_chroma", "own_tantivy", "chroma", "tantivy", "bm25s")
PIPELINES = {"minilm": 2_000, "wordllama": 20_000}
_ATTACHED_AT_MOST = 100_000  # bare Chroma and tantivy are built anew only up to here; above, the kept ones are opened


def main() -> None:
    """Build what is missing, measure, report."""
    arguments = parse()
    results: dict[str, Any] = {"machine": machine(), "sizes": {}}
    if arguments.json.exists():
        results = json.loads(arguments.json.read_text()) | {"machine": machine()}
    synthesizer: Synthesizer | None = None
    for chunks in arguments.chunks:
        bench = BenchSet(arguments.keep / str(chunks))
        bench.root.mkdir(parents=True, exist_ok=True)
        if not arguments.measure_only:
            synthesizer = synthesizer or Synthesizer(arguments.texts, dimension=arguments.dimension)
            build(bench.collection, synthesizer, chunks)
            bench.prepare(synthesizer, chunks, arguments.repeat)
        if arguments.build_only:
            continue
        size = results["sizes"].setdefault(str(chunks), {})
        size["build"] = [json.loads(line) for line in (bench.root / "build.jsonl").read_text().splitlines()]
        for script, names in (("thresher_system.py", (*PARTS, "verifying")), ("bare_systems.py", SYSTEMS)):
            for name in names:
                if name not in (arguments.only or (*PARTS, *SYSTEMS)):
                    continue
                print(f"measuring {name} at {chunks}", flush=True)
                least = min(chunks, _ATTACHED_AT_MOST) if name in ("chroma", "tantivy") else chunks
                extra = [str(least)] if script == "bare_systems.py" else []
                size[name] = in_child(HERE / script, [name, str(bench.root), str(arguments.repeat), *extra])
                save(arguments.json, results)
    if not arguments.build_only and (not arguments.only or "pipeline" in arguments.only):
        results["pipeline"] = []
        for spec, records in PIPELINES.items():
            print(f"ingesting with {spec}", flush=True)
            results["pipeline"].append(in_child(HERE / "pipeline.py", [spec, str(arguments.texts), str(records)]))
            save(arguments.json, results)
    if not arguments.build_only:
        print(table(results))
        if arguments.plots:
            plots(results, arguments.plots)
        parts = [part for size in results["sizes"].values() for part in size.values()]
        if any("error" in part for part in [*parts, *results.get("pipeline", [])]):
            raise SystemExit(1)


def machine() -> dict[str, Any]:
    """What the figures were measured on and with."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory = next((int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        **{name: _version(name) for name in ("chromadb", "tantivy", "bm25s", "numpy")},
    }


def save(file: Path, results: dict[str, Any]) -> None:
    """Write the results so far."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="folder with corpus.jsonl, .md or .txt files")
    parser.add_argument("--keep", type=Path, required=True, help="folder for collections and indexes")
    parser.add_argument("--chunks", type=int, nargs="+", default=[100_000])
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeat", type=int, default=200, help="questions")
    parser.add_argument("--json", type=Path, default=Path("scale.json"))
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--measure-only", action="store_true", help="everything was built and prepared before")
    parser.add_argument("--only", nargs="+", choices=(*PARTS, "verifying", *SYSTEMS, "pipeline"))
    return parser.parse_args()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _lines(file: str) -> list[str]:
    return Path(file).read_text(errors="replace").splitlines()


if __name__ == "__main__":
    main()
