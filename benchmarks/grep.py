"""A grep with a literal in its pattern answers from a trigram index, without reading the collection.

Compared: `Collection.grep` (five hits, checked by google-re2, text read from SQLite) with google-re2 alone over the
    same passages held in memory, one after the other until five match; the same patterns, in one run, in two
    processes.
Command: python benchmarks/grep.py --texts ../shared/data --keep WORK --json WORK/grep.json
Takes: about 3 minutes with the default of 30,000 passages; with a --keep that `scale.py` has filled, 1 minute.
Output: p50 and p95 in milliseconds by kind of pattern (`support/grep_patterns.py` says what each is), and `times`,
    the scan's p50 over ours: below 1 the scan is faster. That is so where matches are everywhere: the scan meets five
    at once, while ours looks for those that come first by document.
Not shown: patterns of real agents; a scan that must read its text from disk, or that finds hits in order, which would
    be slower than this one; memory: the scan holds all text.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from support.building import ready
from support.command import begin, leave, parse, parser, print_table
from support.sets import SAMPLE
from support.timing import in_child


def figures(texts: Path, keep: Path, chunks: int, dimension: int, repeat: int) -> dict[str, Any]:
    """Both systems on one set."""
    bench = ready(texts, keep, chunks, dimension=dimension, questions=repeat)
    ours = in_child("thresher_system", ["grepping", str(bench.root), str(repeat)])
    scan = in_child("bare_systems", ["scan", str(bench.root), str(repeat), str(chunks)])
    for found in (ours, scan):
        if "error" in found:
            raise SystemExit(found["error"])
    kinds = {}
    for name, row in ours.items():
        kind = name.removeprefix("grep, ")
        beside = scan.get(f"scan, {kind}")
        if beside is not None:
            kinds[kind] = {"ours": row, "scan": beside, "times": round(beside["p50"] / max(row["p50"], 1e-3), 2)}
    return {"chunks": chunks, "kinds": kinds, "read_ahead_s": ours["read_ahead_s"]}


def main() -> None:
    """Print a row a kind of pattern."""
    made = parser(__doc__)
    made.add_argument("--texts", type=Path, default=SAMPLE / "docs", help="folder with corpus.jsonl, .md or .txt files")
    made.add_argument("--keep", type=Path, help="folder for the collection, as of scale.py")
    made.add_argument("--chunks", type=int, default=30_000)
    made.add_argument("--dimension", type=int, default=384)
    made.add_argument("--repeat", type=int, default=200, help="a quarter of it are the patterns of each kind")
    options = parse(made, quick={"chunks": 6_000, "dimension": 64, "repeat": 40})
    head = begin(options)
    with tempfile.TemporaryDirectory(prefix="thresher-grep-") as folder:
        keep = options.keep or Path(folder)
        measured = figures(options.texts, keep, options.chunks, options.dimension, options.repeat)
    rows = [
        [
            kind,
            *(f"{row[system][at]:.2f}" for system in ("ours", "scan") for at in ("p50", "p95")),
            f"{row['times']:.1f}",
            row["ours"].get("timeouts", ""),
        ]
        for kind, row in measured["kinds"].items()
    ]
    print_table(["pattern", "grep p50", "p95", "scan p50", "p95", "times", "timed out"], rows)
    leave(options, head, measured)


if __name__ == "__main__":
    main()
