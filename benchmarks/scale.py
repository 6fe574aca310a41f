"""Hybrid search returns ten passages with their text within 10 ms (p95) at 100,000 passages, and 25 ms at 1,000,000.

Compared: the same questions, vectors and passages with bare Chroma, tantivy and bm25s as their guides use them, with
    Chroma and tantivy alone on the very directories that Thresher keeps, and with numpy over all vectors. Each is
    measured in a process of its own, in one run. bm25s comes with `pip install -e '.[bench]'`, and is left out without.
Command: python benchmarks/scale.py --texts ../shared/data --keep WORK --json WORK/scale.json
    More: --chunks 100000 (about 10 minutes) or 1000000 (hours of building), --plots FOLDER.
Takes: about 5 minutes with the default of 30,000 passages; what --keep holds is measured again, not built again.
Output: a table a size. `p50` and `p95` are milliseconds; the rows of bare systems stand below ours. The goals are
    those of the first sentence: at 30,000 passages they are met more easily. Open, kill, memory and disk follow.
Not shown: time of a model that embeds the question (vectors are given; they are made up with the structure of real
    ones, `support/synthetic.py`); what other load does; anything about the quality of results but the recall of the
    dense ranking against brute force. Bare Chroma and tantivy with defaults are built up to 100,000 passages.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from support.bench_set import BenchSet
from support.building import ready
from support.command import begin, leave, parse, parser
from support.report import plots, table
from support.sets import SAMPLE
from support.timing import in_child

PARTS = ("opening", "searching", "grepping", "changing", "killed")
SYSTEMS = ("brute", "own_chroma", "own_tantivy", "chroma", "tantivy", "bm25s")
QUICK = {"chunks": [6_000], "repeat": 12, "dimension": 64}  # more than are searched without an index
_ATTACHED_AT_MOST = 100_000  # bare Chroma and tantivy are built anew only up to here; above, the kept ones are opened


def main() -> None:
    """Build what is missing, measure, report. Ends with status 1 when a part could not be measured."""
    options = parse(options_of_this(), quick=QUICK)
    head = begin(options)
    if options.keep is not None:
        measured_in(options, head)
        return
    with tempfile.TemporaryDirectory(prefix="thresher-scale-") as folder:
        options.keep = Path(folder)
        measured_in(options, head)


def measured_in(options: argparse.Namespace, head: dict[str, Any]) -> None:
    """All sizes. `--json` is written after each part, so that an interrupted run leaves what it had."""
    results: dict[str, Any] = {"sizes": {}}
    if options.json and options.json.exists():
        results["sizes"] = json.loads(options.json.read_text())["sizes"]
    for chunks in options.chunks:
        bench = BenchSet(options.keep.resolve() / str(chunks))
        if not options.measure_only:
            bench = ready(options.texts, options.keep, chunks, dimension=options.dimension, questions=options.repeat)
        if options.build_only:
            continue
        size = results["sizes"].setdefault(str(chunks), {})
        size["build"] = [json.loads(line) for line in (bench.root / "build.jsonl").read_text().splitlines()]
        for module, names in (("thresher_system", (*PARTS, "verifying")), ("bare_systems", SYSTEMS)):
            for name in names:
                if name not in (options.only or (*PARTS, *SYSTEMS)):
                    continue
                if name == "bm25s" and importlib.util.find_spec(name) is None and not options.only:
                    print("bm25s is left out: it is not installed (pip install -e '.[bench]')", flush=True)
                    continue
                print(f"measuring {name} at {chunks}", flush=True)
                least = min(chunks, _ATTACHED_AT_MOST) if name in ("chroma", "tantivy") else chunks
                extra = [str(least)] if module == "bare_systems" else []
                size[name] = in_child(module, [name, str(bench.root), str(options.repeat), *extra])
                if options.json:
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    options.json.write_text(json.dumps({**head, **results}, indent=1))
    if options.build_only:
        return
    print(table({**head, **results}))
    if options.plots:
        plots(results, options.plots)
    leave(options, head, results)
    if any("error" in part for size in results["sizes"].values() for part in size.values()):
        raise SystemExit(1)


def options_of_this() -> argparse.ArgumentParser:
    """The command line."""
    made = parser(__doc__)
    made.add_argument(
        "--texts", type=Path, default=SAMPLE / "docs", help="folder with corpus.jsonl, .md or .txt files to recombine"
    )
    made.add_argument(
        "--keep", type=Path, help="folder for collections and indexes (default: one that goes at the end)"
    )
    made.add_argument("--chunks", type=int, nargs="+", default=[30_000])
    made.add_argument("--dimension", type=int, default=384)
    made.add_argument("--repeat", type=int, default=200, help="questions")
    made.add_argument("--plots", type=Path, help="folder for latency.svg, growth.svg, disk.svg")
    made.add_argument("--build-only", action="store_true")
    made.add_argument("--measure-only", action="store_true", help="everything was built and prepared before")
    made.add_argument("--only", nargs="+", choices=(*PARTS, "verifying", *SYSTEMS))
    return made


if __name__ == "__main__":
    main()
