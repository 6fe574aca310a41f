"""The results of `scale.py` as a Markdown table and as plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Results = Mapping[str, Any]

_SEARCHES = ("search", "search, filter keeps 0.1 %", "search, filter keeps 5 %", "search, filter keeps 50 %")
_COLOURS = {"thresher": "#1b6ca8", "bare": "#9aa5b1", "goal": "#c0392b"}


def table(results: Results) -> str:
    """All results, one block a size."""
    lines = [" · ".join(f"{name} {value}" for name, value in results["machine"].items()), ""]
    for chunks, size in sorted(results["sizes"].items(), key=lambda item: int(item[0])):
        lines += [
            f"### {int(chunks):,} passages",
            "",
            _head("what", "p50 ms", "p95 ms", "recall@10", "notes"),
        ]
        lines += [_row(*cells) for cells in _latency_rows(size)]
        lines += ["", _head("what", "figure")]
        lines += [f"| {what} | {figure} |" for what, figure in _other_rows(size)]
        lines.append("")
    return "\n".join(lines)


def plots(results: Results, folder: Path) -> None:
    """`latency.svg`, `growth.svg` and `disk.svg`."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    folder.mkdir(parents=True, exist_ok=True)
    sizes = sorted(results["sizes"].items(), key=lambda item: int(item[0]))
    _plot_latency(sizes, folder / "latency.svg")
    _plot_growth(sizes, folder / "growth.svg")
    _plot_disk(sizes, folder / "disk.svg")


def _latency_rows(size: Results) -> Iterator[tuple[str, Mapping[str, float], float | None, str]]:
    searching = size.get("searching", {})
    for name in _SEARCHES:
        if name in searching:
            yield f"Thresher {name}", searching[name], searching.get("recall") if name == "search" else None, ""
    for name, row in size.get("grepping", {}).items():
        if isinstance(row, Mapping):
            yield f"Thresher {name}", row, None, f"{row['timeouts']} timed out" if row.get("timeouts") else ""
    for name, row in size.get("changing", {}).items():
        if isinstance(row, Mapping):
            yield f"Thresher {name} of one document", row, None, "4 passages"
    names = {
        "own_chroma": "Chroma alone, Thresher's directory, 100 deep",
        "own_tantivy": "tantivy alone, Thresher's directory, 100 deep",
        "brute": "numpy, all vectors",
        "chroma": "bare Chroma, defaults, 10 deep",
        "tantivy": "bare tantivy, defaults, 10 deep",
        "bm25s": "bm25s, 10 deep",
    }
    for key, title in names.items():
        own = size.get(key, {})
        if "error" in own:
            yield title, {}, None, own["error"]
            continue
        for name in _SEARCHES:
            if name in own:
                note = f"{own['chunks']:,} passages" if "chunks" in own else ""
                label = title if name == "search" else f"{title}, {name.removeprefix('search, ')}"
                yield label, own[name], own.get("recall") if name == "search" else None, note


def _other_rows(size: Results) -> Iterator[tuple[str, str]]:
    if steps := size.get("build"):
        total, spent = steps[-1]["chunks"], sum(step["seconds"] for step in steps)
        yield "ingest without a model, passages/s", f"{total / spent:.0f} (last step {steps[-1]['rate']:.0f})"
    for key, title in (("chroma", "bare Chroma"), ("tantivy", "bare tantivy"), ("bm25s", "bm25s")):
        if "build_rate" in size.get(key, {}):
            yield f"{title}: build, passages/s", f"{size[key]['build_rate']:.0f} ({size[key]['chunks']:,} passages)"
            yield f"{title}: bytes a passage", f"{size[key]['bytes_per_chunk']:,}"
    if (opening := size.get("opening")) and "error" not in opening:
        yield "open / first search after a clean end, s", f"{opening['open_s']} / {opening['first_search_s']}"
        for when, memory in opening["memory_mb"].items():
            yield f"memory {when}, MB", f"{memory['rss']:,.0f} (of it not file cache: {memory['anonymous']:,.0f})"
        parts = opening["bytes_per_chunk"]
        inside = ", ".join(f"{name} {value:,}" for name, value in parts.items())
        yield "bytes a passage", f"{sum(parts.values()):,} ({inside}; its text {opening['text_bytes_per_chunk']:,})"
    if "open_s" in size.get("killed", {}):
        yield "open / first search after kill -9, s", f"{size['killed']['open_s']} / {size['killed']['first_search_s']}"
    if "verify_s" in size.get("verifying", {}):
        yield "verify, s", f"{size['verifying']['verify_s']} ({len(size['verifying']['problems'])} problems)"
    if "own passage among 10" in size.get("searching", {}):
        yield "the passage a question was made from is among 10", f"{size['searching']['own passage among 10']:.1%}"


def _head(*names: str) -> str:
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def _row(what: str, times: Mapping[str, float], recall: float | None, note: str) -> str:
    shown = "" if recall is None else f"{recall:.3f}"
    return f"| {what} | {times.get('p50', '')} | {times.get('p95', '')} | {shown} | {note} |"


def _plot_latency(sizes: list[tuple[str, Any]], file: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(sizes), figsize=(5.2 * len(sizes), 5.6), squeeze=False, layout="constrained")
    for axis, (chunks, size) in zip(axes[0], sizes, strict=True):
        rows = [(what, times) for what, times, _, _ in _latency_rows(size) if times]
        rows.reverse()
        names = [what for what, _ in rows]
        colours = [_COLOURS["thresher" if what.startswith("Thresher") else "bare"] for what in names]
        axis.barh(names, [times["p95"] for _, times in rows], color=colours, height=0.7)
        axis.plot([times["p50"] for _, times in rows], names, "k|", markersize=9)
        axis.axvline(10 if int(chunks) <= 100_000 else 25, color=_COLOURS["goal"], linewidth=0.8, linestyle="--")
        axis.set_xscale("log")
        axis.tick_params(axis="y", labelsize=7)
        axis.set_xlabel("ms: bar p95, mark p50; dashed: goal of search")
        axis.set_title(f"{int(chunks):,} passages")
    figure.savefig(file)
    pyplot.close(figure)


def _plot_growth(sizes: list[tuple[str, Any]], file: Path) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(5.2, 3), layout="constrained")
    steps = next((size["build"] for _, size in reversed(sizes) if size.get("build")), [])
    axis.plot([step["chunks"] / 1e3 for step in steps], [step["rate"] for step in steps], color=_COLOURS["thresher"])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("thousand passages in the collection")
    axis.set_ylabel("passages written a second")
    figure.savefig(file)
    pyplot.close(figure)


def _plot_disk(sizes: list[tuple[str, Any]], file: Path) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(5.2, 1.2 + 0.5 * len(sizes)), layout="constrained")
    shades = {"corpus.db": "#1b6ca8", "tantivy": "#6fb1de", "chroma": "#c9e2f3"}
    for row, (_, size) in enumerate(sizes):
        left = 0.0
        for part, value in size.get("opening", {}).get("bytes_per_chunk", {}).items():
            axis.barh(row, value, left=left, color=shades[part])
            axis.text(left + value / 2, row, part, ha="center", va="center", fontsize=7)
            left += value
    axis.set_yticks(range(len(sizes)), [f"{int(chunks):,}" for chunks, _ in sizes])
    axis.set_xlabel("bytes a passage on disk")
    figure.savefig(file)
    pyplot.close(figure)


if __name__ == "__main__":
    loaded = json.loads(Path(sys.argv[1]).read_text())
    print(table(loaded))
    if len(sys.argv) > 2:
        plots(loaded, Path(sys.argv[2]))
