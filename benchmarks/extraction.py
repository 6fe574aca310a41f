"""The main text of web pages is found as well as by trafilatura, and no page makes the reader slow.

Compared: our reader with trafilatura, with its defaults and with `favor_recall`, on three sorts of pages: pages made
    here, whose main text is known (`support/extraction_pages.py`); the HTML files of a folder; pages made to be slow,
    each in a process of its own, which is ended after --limit seconds.
Command: python benchmarks/extraction.py ../shared/data/messy --json extraction.json
    trafilatura comes with `pip install -e '.[bench]'`; without it ours is measured alone.
Takes: about 6 minutes, most of it for slow pages that trafilatura is given --limit seconds for.
Output: recall, the share of word shingles of the main text that come out; precision, the share of what comes out that
    is main text; pages of which nothing comes out. Shingles are three words within a line, fewer where the line is
    shorter. For the files of `KNOWN`: phrases of the main text found, and phrases of the frame left in. Times are of
    the processor.
Not shown: the web. Made pages are clean by kind, real files are few, and one of them was looked at while ours was
    written.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser
from support.extraction_pages import LANGUAGES, Page, hostile, pages
from support.timing import child_environment

from thresher.corpus.errors import CorpusError
from thresher.corpus.loaders.html import extract_html

Reader = Callable[[bytes], str]
Shingle = tuple[str, ...]
SIZE = 3
_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]|[^\W_\u3400-\u9fff\u3040-\u30ff]+")

KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "docling__wiki_duck.html": (
        ("Ducks are generally smaller and shorter-necked than swans and geese", "Kingdom: Animalia", "Hunting",
         "The word duck comes from Old English", "Ducks at a Distance, by Rob Hines"),
        ("Donate", "Random article", "Edit links", "Privacy policy", "Create account",
         "Articles containing video clips"),
    ),
    "markitdown__test_blog.html": (
        ("Does Model and Inference Parameter Matter in LLM Applications?", "April 21, 2023",
         "Just by tuning the inference parameters", "Research paper about the tuning technique",
         "Please join our Discord server"),
        ("Recent posts", "Skip to main content", "Copyright", "Edit this page", "All our posts"),
    ),
    "unstructured__example-with-scripts.html": (
        ("Russian Offensive Campaign Assessment, December 13", "Dec 13, 2022", "https t me m0sc0wcalling 16191",
         "Belarusian forces remain unlikely to attack Ukraine"),
        ("Donate", "Who We Are", "Contact", "jQuery", "All rights reserved"),
    ),
    "unstructured__example-10k-1p.html": (
        ("TRANSITION REPORT PURSUANT TO SECTION 13", "Commission file number 000-30653",
         "Item 9B Other Information 35"),
        (),
    ),
    "tika__big-preamble.html": (("Континент-Недвижимость", "основано в 1999 году"), ("var", "function")),
}  # fmt: skip
"""Phrases that must be in the text of a file, and phrases of its frame."""


def ours(data: bytes) -> str:
    try:
        return extract_html(data).text
    except CorpusError:
        return ""


def _trafilatura(**options: Any) -> Reader:
    def read(data: bytes) -> str:
        import trafilatura

        return trafilatura.extract(data, **options) or ""

    return read


def readers() -> dict[str, Reader]:
    """Those that are installed."""
    found = {"ours": ours}
    try:
        importlib.import_module("trafilatura")
    except ImportError as error:
        print(f"trafilatura is left out: {error}", file=sys.stderr)
    else:
        found["trafilatura"] = _trafilatura()
        found["trafilatura, recall"] = _trafilatura(favor_recall=True)
    return found


def words(text: str) -> list[str]:
    """Words in lower case; a Chinese character or a kana is a word."""
    return _WORD.findall(text.casefold())


def grams(sequence: Sequence[str], size: int) -> list[Shingle]:
    return [tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)]


def shingles(lines: Iterable[str]) -> list[Shingle]:
    """Of each line by itself, so that where lines are broken counts for nothing."""
    return [gram for line in lines if (found := words(line)) for gram in grams(found, min(SIZE, len(found)))]


def within(text: str) -> set[Shingle]:
    """Everything of up to `SIZE` words that a text holds."""
    found = words(text)
    return {gram for size in range(1, SIZE + 1) for gram in grams(found, size)}


def score(page: Page, text: str) -> tuple[float, float | None]:
    """(recall, precision) of what was read; no precision where nothing was."""
    wanted = shingles(page.wanted)
    read = within(text)
    recall = sum(gram in read for gram in wanted) / len(wanted)
    fair = within("\n".join(page.wanted))
    either = within("\n".join(page.either)) - fair
    counted = [gram for gram in shingles(text.split("\n")) if gram not in either]
    return recall, sum(gram in fair for gram in counted) / len(counted) if counted else None


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else float("nan")


def on_made_pages(systems: dict[str, Reader], seeds: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    made = pages(seeds)
    for name, read in systems.items():
        read(made[0].html.encode())  # the first call imports and compiles
        kinds: dict[str, list[dict[str, Any]]] = {}
        for page in made:
            started = time.process_time()
            text = read(page.html.encode())
            seconds = time.process_time() - started
            recall, precision = score(page, text)
            row = {"recall": recall, "precision": precision, "empty": not text.strip(), "seconds": seconds}
            kinds.setdefault(page.kind, []).append(row)
            kinds.setdefault(f"language {page.language}", []).append(row)
            kinds.setdefault("all", []).append(row)
        rows[name] = {kind: _averages(scored) for kind, scored in kinds.items()}
    return rows


def _averages(scored: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = sorted(row["seconds"] for row in scored)
    recall = mean(row["recall"] for row in scored)
    precision = mean(row["precision"] for row in scored if row["precision"] is not None)
    return {
        "pages": len(scored),
        "recall": recall,
        "precision": precision,
        "f1": 2 * recall * precision / (recall + precision) if recall + precision > 0 else 0.0,
        "empty": sum(row["empty"] for row in scored),
        "ms_median": 1_000 * seconds[len(seconds) // 2],
        "ms_p95": 1_000 * seconds[int(0.95 * (len(seconds) - 1))],
    }


def on_files(systems: dict[str, Reader], folder: Path, repeat: int = 3) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for path in sorted(folder.glob("*.html")):
        data = path.read_bytes()
        texts, row = {}, {}
        for name, read in systems.items():
            taken = []
            for _ in range(repeat):
                started = time.process_time()
                texts[name] = read(data)
                taken.append(time.process_time() - started)
            row[name] = {"words": len(words(texts[name])), "ms": 1_000 * sorted(taken)[repeat // 2]}
        for name, text in texts.items():
            own = shingles(text.split("\n"))
            for other in texts:
                if other != name and "ours" in (name, other):
                    held = within(texts[other])
                    row[name][f"also in {other}"] = mean(gram in held for gram in own)
            if path.name in KNOWN:
                sequence = f" {' '.join(words(text))} "
                wanted, frame = (
                    [f" {' '.join(words(phrase))} " in sequence for phrase in side] for side in KNOWN[path.name]
                )
                row[name] |= {"wanted": [sum(wanted), len(wanted)], "frame": [sum(frame), len(frame)]}
        rows[path.name] = row
    return rows


def on_hostile_pages(systems: Iterable[str], limit: float) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for case in hostile():
        rows[case] = {name: _in_child(name, case, limit) for name in systems}
    return rows


def _in_child(name: str, case: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--limit", str(limit), "--one", name, case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    if done.returncode == -signal.SIGXCPU:
        return {"ended": f"> {limit:.0f} s"}
    if done.returncode:
        return {"ended": f"died ({done.returncode})"}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def one(name: str, case: str, limit: float) -> None:
    """One slow page in this process."""
    read, data = readers()[name], hostile()[case]
    read(b"<html><body><p>some words to warm it up with</p></body></html>")
    started = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(started + limit) + 1, resource.RLIM_INFINITY))
    text = read(data)
    print(json.dumps({"seconds": time.process_time() - started, "characters": len(text)}))


def _print(measured: dict[str, Any]) -> None:
    systems = measured["systems"]
    made = measured["made"]
    print(f"Made pages, {len(LANGUAGES)} languages: recall / precision in percent (pages of which nothing came out)\n")
    _table(
        ("kind", "pages", *systems),
        [
            (kind, made[systems[0]][kind]["pages"], *(_quality(made[name][kind]) for name in systems))
            for kind in made[systems[0]]
        ],
    )
    every = {name: made[name]["all"] for name in systems}
    _table(
        ("ms a page", *systems),
        [("median / p95", *(f"{r['ms_median']:.1f} / {r['ms_p95']:.1f}" for r in every.values()))],
    )
    if measured["files"]:
        print("Files: words, ms; phrases of the main text found; phrases of the frame left in\n")
        _table(
            ("file", *systems),
            [(name, *(_file(row[system]) for system in systems)) for name, row in measured["files"].items()],
        )
    if measured["hostile"]:
        print("Pages made to be slow: seconds (characters that came out)\n")
        _table(
            ("page", *systems),
            [(case, *(_slow(row[system]) for system in systems)) for case, row in measured["hostile"].items()],
        )


def _quality(row: dict[str, Any]) -> str:
    empty = f" ({row['empty']})" if row["empty"] else ""
    return f"{100 * row['recall']:.1f} / {100 * row['precision']:.1f}{empty}"


def _file(row: dict[str, Any]) -> str:
    known = (
        f"; {row['wanted'][0]} of {row['wanted'][1]}; {row['frame'][0]} of {row['frame'][1]}" if "wanted" in row else ""
    )
    return f"{row['words']:,}, {row['ms']:.0f} ms{known}"


def _slow(row: dict[str, Any]) -> str:
    return str(row.get("ended") or f"{row['seconds']:.2f} ({row['characters']:,})")


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def main() -> None:
    """Print three tables, or read one slow page."""
    made = parser(__doc__)
    made.add_argument("messy", type=Path, nargs="?", metavar="FOLDER", help="folder of HTML files")
    made.add_argument("--seeds", type=int, default=3, help="pages of each kind and language")
    made.add_argument("--limit", type=float, default=10, help="seconds for one slow page; 0 leaves them out")
    made.add_argument("--one", nargs=2, metavar=("READER", "PAGE"), help=argparse.SUPPRESS)
    options = parse(made, quick={"seeds": 1, "limit": 0})
    if options.one:
        one(*options.one, options.limit)
        return
    head = begin(options)
    systems = readers()
    measured = {
        "systems": list(systems),
        "made": on_made_pages(systems, options.seeds),
        "files": on_files(systems, options.messy) if options.messy else {},
        "hostile": on_hostile_pages(systems, options.limit) if options.limit else {},
    }
    _print(measured)
    leave(options, head, measured)


if __name__ == "__main__":
    main()
