"""An evaluation as pictures, in SVG: what it finds against what it costs, and how sure the differences are.

The same data make the same bytes (with the same matplotlib), so that pictures can be compared by `diff`. Letters are
drawn as outlines, so that they look alike everywhere. Colours are of Okabe and Ito ("Color Universal Design", 2008),
which people with any colour vision can tell apart; each system has a marker of its own, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher.train.evaluation.reporting.figures import ABSTENTION, Interval, interval, known
from thresher.train.evaluation.reporting.reading import Data, Part, baseline, overall, parts, system_names
from thresher.train.evaluation.reporting.tables import by_hop
from thresher.train.monitoring.plots import PlotError

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C6D31", "#666666")
_BASELINE_COLOUR = "#000000"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "<", ">")
_BASELINE_MARKER = "*"
_GREY = "#8a8a8a"
_SETTINGS = {
    "svg.hashsalt": "thresher",
    "svg.fonttype": "path",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_PANEL = (3.5, 2.7)
"""Inches of a panel, wide and high."""
_ROWS_OF_LEGEND = 12
_NAME = 60
"""Characters of a name that are drawn."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class _Look:
    colour: str
    marker: str
    size: float = 7


def draw(data: Data, folder: Path) -> list[Path]:
    """Draw what the data have, into a folder that is made if need be.

    Args:
        data: `Evaluation.as_dict()`, as it is or read from `evaluation.json`.

    Returns:
        The files: `recall-context.svg`, `recall-seconds.svg`, `differences.svg`, `abstention.svg`, `hops.svg`, as far
        as the data have values for them. Where a set has excerpts and no documents as gold, span recall takes the
        place of recall@10.

    Raises:
        PlotError: matplotlib is missing.
    """
    makers: dict[str, Callable[[Data], Any]] = {
        "recall-context.svg": _recall_context,
        "recall-seconds.svg": _recall_seconds,
        "differences.svg": _differences,
        "abstention.svg": _abstention,
        "hops.svg": _hops,
    }
    made = []
    with _settings():
        for name, make in makers.items():
            figure = make(data)
            if figure is not None:
                folder.mkdir(parents=True, exist_ok=True)
                figure.savefig(folder / name, format="svg", metadata={"Date": None, "Creator": None})
                made.append(folder / name)
    return made


def _recall_context(data: Data) -> Any:
    return _recall_against(data, "peak_context_tokens", "peak context (tokens)", log=False)


def _recall_seconds(data: Data) -> Any:
    return _recall_against(data, "seconds_median", "seconds a question (median, log scale)", log=True)


def _recall_against(data: Data, key: str, label: str, *, log: bool) -> Any:
    """A panel for each set with what systems find against what they spend, and its Pareto front."""
    panels = []
    for part in _panels(data):
        points = {
            name: (spent, 100 * found)
            for name, summary in part.summaries.items()
            if (spent := known(summary.get(key))) is not None
            and (found := known(summary.get(part.found.key))) is not None
            and (spent > 0 or not log)
        }
        if points:
            panels.append((part, points))
    if not panels:
        return None
    looks = _looks(data)
    figure, axes, free = _grid(len(panels))
    for axis, (part, points) in zip(axes, panels, strict=True):
        across, up = pareto_front(list(points.values()))
        axis.plot(across, up, drawstyle="steps-post", color=_GREY, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        for name, (x, y) in reversed(points.items()):  # the baseline on top
            _point(axis, x, y, looks[name])
        _name_panel(axis, part)
        axis.set_xlabel(label)
        axis.set_ylabel(f"{part.found.name} (%)")
        if log:
            _log_ticks(axis, [x for x, _ in points.values()])
        else:
            most = max(x for x, _ in points.values())
            axis.set_xlim(-0.05 * most - 1, 1.08 * most + 1)
            axis.xaxis.set_major_locator(_ticker().MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            axis.xaxis.set_major_formatter(_ticker().StrMethodFormatter("{x:,.0f}"))
        _share_limits(axis, [y for _, y in points.values()])
    shown = [name for name in looks if any(name in points for _, points in panels)]
    _legend(figure, free, {name: looks[name] for name in shown}, front=True)
    return figure


def pareto_front(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Points (spent, found) than which no other finds as much for less, or more for as much; by what they spend."""
    front: list[tuple[float, float]] = []
    for spent, found in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or found > front[-1][1]:
            front.append((spent, found))
    return [spent for spent, _ in front], [found for _, found in front]


def _differences(data: Data) -> Any:
    """A forest plot: the paired difference of each system from the baseline with its interval, a panel for each set."""
    panels: list[tuple[Part, dict[str, Interval]]] = []
    for part in _panels(data):
        found = {
            name: own
            for name in part.summaries
            if name != baseline(data)
            and (own := interval((part.differences.get(name) or {}).get(part.found.key))) is not None
        }
        if found:
            panels.append((part, found))
    if not panels:
        return None
    names = [name for name in system_names(data) if any(name in found for _, found in panels)]
    looks = _looks(data)
    figure, axes, _ = _grid(len(panels), height=0.9 + 0.27 * len(names), sharey=True)
    for axis, (part, found) in zip(axes, panels, strict=True):
        axis.axvline(0, color="#333333", linewidth=1, zorder=1)
        for name, own in found.items():
            look, at = looks[name], names.index(name)
            axis.plot(
                [100 * own.low, 100 * own.high], [at, at], color=look.colour, linewidth=1.8, solid_capstyle="butt"
            )
            _point(axis, 100 * own.mean, at, look, filled=own.excludes_zero)
        _name_panel(axis, part)
        axis.set_xlabel(f"{part.found.name}, points over {_short(baseline(data))}")
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks(range(len(names)), [_short(name) for name in names])
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.08)
        axis.xaxis.set_major_locator(_ticker().MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    figure.supxlabel(
        "95 % intervals, paired bootstrap; hollow where the interval holds zero", fontsize=8, color="#444444"
    )
    return figure


def _abstention(data: Data) -> Any:
    """Precision, recall and F1 of calling a question insufficient, a row for each system, a panel for each set."""
    panels: list[tuple[Part, dict[str, list[float | None]]]] = []
    for part in _panels(data):
        found = {
            name: [known(summary.get(measure.key)) for measure in ABSTENTION]
            for name, summary in part.summaries.items()
            if known(summary.get("abstention_recall")) is not None
        }
        if part.without_gold and found:
            panels.append((part, found))
    if not panels:
        return None
    names = [name for name in system_names(data) if any(name in found for _, found in panels)]
    kinds = {
        measure.name: _Look(colour, marker, 6.5)
        for measure, colour, marker in zip(ABSTENTION, _COLOURS[:3], ("^", "s", "o"), strict=True)
    }
    figure, axes, free = _grid(len(panels), height=0.9 + 0.27 * len(names), sharey=True)
    for axis, (part, found) in zip(axes, panels, strict=True):
        for name, values in found.items():
            at = names.index(name)
            shown = [100 * value for value in values if value is not None]
            axis.plot([min(shown), max(shown)], [at, at], color="#c4c4c4", linewidth=1.4, zorder=1)
            for value, look in zip(values, kinds.values(), strict=True):
                if value is not None:
                    _point(axis, 100 * value, at, look)
        _name_panel(axis, part, n=part.without_gold, of="without gold")
        axis.set_xlabel("share (%)")
        axis.set_xlim(-4, 104)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks(range(len(names)), [_short(name) for name in names])
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    _legend(figure, free, kinds)
    return figure


def _hops(data: Data) -> Any:
    """What is found of each step of the decompositions; below, of all steps up to it."""
    kinds = (
        ("hop_recall", "gold of the step found (%)", "hop"),
        ("chain_10", "all steps so far found (%)", "up to hop"),
    )
    looks = _looks(data)
    panels = []
    for key, label, across in kinds:
        for part in _panels(data):
            found = {name: own for name, summary in part.summaries.items() if (own := by_hop(summary.get(key)))}
            if any(len(own) > 1 for own in found.values()):
                panels.append((part, found, label, across))
    if not panels:
        return None
    columns = sum(label == panels[0][2] for _, _, label, _ in panels)
    figure, axes, free = _grid(len(panels), columns=min(columns, 4))
    for axis, (part, found, label, across) in zip(axes, panels, strict=True):
        hops = sorted({hop for own in found.values() for hop in own})
        for place, (name, own) in enumerate(found.items()):
            # A little apart, so that systems that find the same are seen.
            aside = 0.024 * (place - (len(found) - 1) / 2)
            look = looks[name]
            ordered = sorted(own.items())
            axis.plot(
                [hop + aside for hop, _ in ordered],
                [100 * share for _, share in ordered],
                color=look.colour,
                marker=look.marker,
                markersize=look.size - 1,
                markeredgecolor="white",
                markeredgewidth=0.6,
                linewidth=1.3,
            )
        _name_panel(axis, part)
        axis.set_xticks(hops, [f"{hop}" for hop in hops])
        axis.set_xlim(hops[0] - 0.3, hops[-1] + 0.3)
        axis.set_xlabel(across)
        axis.set_ylabel(label)
        _share_limits(axis, [100 * share for own in found.values() for share in own.values()])
    _legend(
        figure, free, {name: look for name, look in looks.items() if any(name in found for _, found, _, _ in panels)}
    )
    return figure


def _panels(data: Data) -> list[Part]:
    """Each set, and all of them together."""
    whole = overall(data)
    return [*parts(data), *([whole] if whole else [])]


def _looks(data: Data) -> dict[str, _Look]:
    """Colour and marker of each system; the baseline is black."""
    looks: dict[str, _Look] = {}
    place = 0
    for name in system_names(data):
        if name == baseline(data):
            looks[name] = _Look(_BASELINE_COLOUR, _BASELINE_MARKER, 11)
        else:
            looks[name] = _Look(_COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)])
            place += 1
    return looks


def _point(axis: Any, x: float, y: float, look: _Look, *, filled: bool = True) -> None:
    axis.plot(
        [x],
        [y],
        linestyle="",
        marker=look.marker,
        markersize=look.size,
        color=look.colour,
        markerfacecolor=look.colour if filled else "white",
        markeredgecolor="white" if filled else look.colour,
        markeredgewidth=0.7 if filled else 1.5,
        zorder=3,
        clip_on=False,
    )


def _grid(count: int, *, columns: int | None = None, height: float = _PANEL[1], sharey: bool = False) -> Any:
    """A figure with so many panels row by row, its panels, and the places that are left over."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    wide = columns or min(count, 2 if count in (2, 4) else 3)
    high = math.ceil(count / wide)
    extra = 1.2 if sharey else 0.0
    figure = Figure(figsize=(max(_PANEL[0] * wide, 5.2) + extra, height * high + 0.4), layout="constrained")
    FigureCanvasSVG(figure)
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.08, h_pad=0.08)
    axes = list(figure.subplots(high, wide, squeeze=False, sharey=sharey).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count], axes[count:]


def _name_panel(axis: Any, part: Part, *, n: int | None = None, of: str = "") -> None:
    """The name of a set and how many questions its figures are of."""
    number = _compared(part) if n is None else n
    axis.set_title(f"{_short(part.name)} (n = {number:,}{f' {of}' if of else ''})", loc="left")


def _compared(part: Part) -> int:
    """Questions that have what the panel shows."""
    found = (interval((own or {}).get(part.found.key)) for own in part.differences.values())
    return next((own.n for own in found if own and own.n is not None), part.questions - part.without_gold)


def _share_limits(axis: Any, values: Sequence[float]) -> None:
    """Limits that show the differences: round tens around the values, at least 20 points, never beyond 0 and 100."""
    low, high = 10 * math.floor(min(values) / 10), 10 * math.ceil(max(values) / 10)
    if high - low < 20:
        low, high = max(0, low - 10), min(100, high + 10)
    room = 0.03 * (high - low)
    axis.set_ylim(low - room, high + room)
    axis.yaxis.set_major_locator(_ticker().MaxNLocator(5, steps=[1, 2, 5, 10]))


def _log_ticks(axis: Any, values: Sequence[float]) -> None:
    """Ticks at 1, 2 and 5 of each decade, in plain numbers."""
    axis.set_xscale("log")
    axis.set_xlim(min(values) / 1.6, max(values) * 1.6)
    decades = math.log10(max(values) / min(values) * 2.56)
    ticks = _ticker()
    axis.xaxis.set_major_locator(
        ticks.LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,) if decades > 4 else (1.0, 3.0))
    )
    axis.xaxis.set_minor_locator(ticks.NullLocator())
    axis.xaxis.set_major_formatter(ticks.FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(figure: Any, free: Sequence[Any], looks: Mapping[str, _Look], *, front: bool = False) -> None:
    """One legend for all panels: in a place that is left over, else below."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], linestyle="", marker=look.marker, markersize=look.size, color=look.colour, markeredgecolor="white"
        )
        for look in looks.values()
    ]
    names = [_short(name) for name in looks]
    if front:
        handles.append(Line2D([], [], color=_GREY, linewidth=1.1, linestyle=(0, (4, 3))))
        names.append("Pareto front")
    if free and len(names) <= _ROWS_OF_LEGEND:
        legend = free[0].legend(handles, ["-"] * len(names), loc="center left")
        _set_names(legend, names)
        return
    across = max(1, min(len(names), int(figure.get_size_inches()[0] * 11 // (max(map(len, names)) + 5))))
    _set_names(figure.legend(handles, ["-"] * len(names), loc="outside lower center", ncols=across), names)


def _set_names(legend: Any, names: Sequence[str]) -> None:
    """Labels that begin with an underscore would be left out of a legend, so that names are set afterwards."""
    for label, name in zip(legend.get_texts(), names, strict=True):
        label.set_text(name)


def _short(name: str) -> str:
    line = _UNFIT.sub(" ", name).strip()
    return line if len(line) <= _NAME else f"{line[: _NAME - 1]}…"


def _ticker() -> Any:
    from matplotlib import ticker

    return ticker


@contextmanager
def _settings() -> Iterator[None]:
    """Our settings on top of matplotlib's defaults, whatever the user's own are; afterwards they are as before."""
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError(
            "pictures of evaluations need matplotlib: pip install 'thresher[plots]', or pip install matplotlib"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield
