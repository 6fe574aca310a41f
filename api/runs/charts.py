"""Charts of runs as inline SVG: curves, stacked shares, and what happened on the line of steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.api.runs.words import label, number, stretches
from thresher.train.markup import Html, join, tag

if TYPE_CHECKING:
    from thresher.train.monitoring.alarms import Alarm
    from thresher.train.monitoring.log import StepLog
    from thresher.train.monitoring.runs import Run

WIDTH, HEIGHT = 260, 110
_LEFT, _RIGHT, _TOP, _BOTTOM = 6, 6, 8, 18
_POINTS = 160
"""Points that are drawn of a curve; of more, means of stretches are."""
_SMOOTH_FROM = 20
COLOURS = 8
"""Classes `r0` … of lines; from the ninth run on they come again."""
_ROW = 16
_WIDE = 760

Curve = Sequence[tuple[float, float]]
"""Step and value."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its colour and its name."""

    curve: Curve
    colour: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        spread = self.high - self.low
        at = (value - self.low) / spread if 0 < spread < math.inf else 0.5
        return round(self.start + at * (self.end - self.start), 1)


def chart(title: str, lines: Sequence[Line], alarms: Iterable[Alarm] = ()) -> Html:
    """A small chart of one number: a line for each run, and behind it the stretches in which alarms were raised."""
    drawn = [line for line in lines if line.curve]
    xs = [x for line in drawn for x, _ in line.curve]
    ys = [y for line in drawn for _, y in line.curve]
    if not drawn:
        return tag("figure", tag("figcaption", title), tag("p", "nothing", class_="hint"), class_="multiple")
    across = _Scale(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    up = _Scale(min(ys), max(ys), HEIGHT - _BOTTOM, _TOP)
    bands = [_band(alarm, across, HEIGHT - _BOTTOM) for alarm in alarms]
    body = [_line(line, across, up) for line in drawn]
    last = " · ".join(number(line.curve[-1][1]) for line in drawn[:4])
    said = f"{title}: from {number(drawn[0].curve[0][1])} to {number(drawn[0].curve[-1][1])}"
    axis = tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=HEIGHT - _BOTTOM, y2=HEIGHT - _BOTTOM, class_="axis")
    ticks = [
        tag("text", number(min(xs)), x=_LEFT, y=HEIGHT - 5, class_="tick"),
        tag("text", number(max(xs)), x=WIDTH - _RIGHT, y=HEIGHT - 5, class_="tick end"),
    ]
    picture = tag(
        "svg", bands, axis, body, ticks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=said, class_="curve"
    )
    note = tag("small", f"{number(min(ys))} to {number(max(ys))}")
    return tag(
        "figure", tag("figcaption", tag("b", title), " ", tag("span", last), " ", note), picture, class_="multiple"
    )


def shares(steps: Sequence[StepLog]) -> Html | None:
    """Whose gradient it is: shares by the number of segments of a rollout, stacked; None where no step knows."""
    from thresher.train.monitoring.plots import least_segments

    having = [step for step in steps if step.gradient_share]
    if not having:
        return None
    names = sorted({name for step in having for name in step.gradient_share}, key=least_segments)
    columns = having if len(having) <= _POINTS else having[:: -(-len(having) // _POINTS)]
    wide = (_WIDE - 2 * _LEFT) / len(columns)
    plot = HEIGHT - _TOP - _BOTTOM
    bars = []
    for place, step in enumerate(columns):
        low = 0.0
        for at, name in enumerate(names):
            size = step.gradient_share.get(name, 0.0)
            size = size if math.isfinite(size) else 0.0
            bars.append(
                tag(
                    "rect",
                    x=round(_LEFT + place * wide, 2),
                    y=round(_TOP + plot * (1 - low - size), 2),
                    width=round(max(0.5, wide * 0.92), 2),
                    height=round(plot * size, 2),
                    class_=f"f{at % COLOURS}",
                )
            )
            low += size
    ticks = [
        tag("text", f"{columns[0].step:,}", x=_LEFT, y=HEIGHT - 5, class_="tick"),
        tag("text", f"{columns[-1].step:,}", x=_WIDE - _LEFT, y=HEIGHT - 5, class_="tick end"),
    ]
    last = ", ".join(f"{name} segments {having[-1].gradient_share.get(name, 0.0):.0%}" for name in names)
    picture = tag(
        "svg",
        bars,
        ticks,
        viewBox=f"0 0 {_WIDE} {HEIGHT}",
        role="img",
        aria_label=f"share, last: {last}",
        class_="curve",
    )
    keys = [
        tag("li", tag("span", class_=f"key b{at % COLOURS}", aria_hidden="true"), f"{name} segments")
        for at, name in enumerate(names)
    ]
    return tag("div", tag("ul", keys, class_="legend"), tag("div", picture, class_="card"))


def timeline(run: Run) -> Html | None:
    """Alarms from their beginning to their end, evaluations and checkpoints, on the line of steps."""
    marks = [each.step for each in run.evaluations] + list(run.checkpoints)
    if not (run.steps or marks):
        return None
    first = min([step.step for step in run.steps[:1]] + marks)
    last = max([run.step, *marks, first + 1])
    left = 150
    across = _Scale(first, last, left, _WIDE - 12)
    names = list(dict.fromkeys(alarm.name for alarm in run.alarms))
    rows: list[tuple[str, list[Html]]] = [
        (name, [_bar(alarm, across, last, row) for alarm in run.alarms if alarm.name == name])
        for row, name in enumerate(names)
    ]
    for title, kind, steps in (
        ("evaluations", "evaluated", [(each.step, label(each)) for each in run.evaluations]),
        ("checkpoints", "kept", [(step, f"step {step:,}") for step in run.checkpoints]),
    ):
        if steps:
            y = 6 + len(rows) * _ROW + (_ROW - 5) / 2
            rows.append(
                (
                    title,
                    [tag("circle", tag("title", said), cx=across(at), cy=y, r=4, class_=kind) for at, said in steps],
                )
            )
    height = 6 + len(rows) * _ROW + 22
    names_drawn = [
        tag("text", name, x=left - 10, y=6 + at * _ROW + 10, class_="tick end") for at, (name, _) in enumerate(rows)
    ]
    base = height - 18
    axis = tag("line", x1=left, x2=_WIDE - 12, y1=base, y2=base, class_="axis")
    ticks = [
        tag("text", f"step {first:,}", x=left, y=height - 4, class_="tick"),
        tag("text", f"{last:,}", x=_WIDE - 12, y=height - 4, class_="tick end"),
    ]
    raised = ", ".join(names) or "no alarm"
    return tag(
        "svg",
        [join(marks) for _, marks in rows],
        names_drawn,
        axis,
        ticks,
        viewBox=f"0 0 {_WIDE} {height}",
        role="img",
        aria_label=f"Steps {first} to {last}: {raised}",
        class_="chart",
    )


def _bar(alarm: Alarm, across: _Scale, last: float, row: int) -> Html:
    start = across(alarm.step)
    end = across(alarm.cleared if alarm.cleared is not None else last)
    size = {"x": start, "y": 6 + row * _ROW, "width": max(3.0, round(end - start, 1)), "height": _ROW - 5}
    state = "over" if alarm.cleared is not None else "on"
    return tag("g", tag("title", str(alarm)), tag("rect", **size), class_=f"alarm {state}")


def _band(alarm: Alarm, across: _Scale, height: float) -> Html:
    start = max(min(across(alarm.step), WIDTH - _RIGHT), _LEFT)
    end = max(min(across(alarm.cleared) if alarm.cleared is not None else WIDTH - _RIGHT, WIDTH - _RIGHT), start)
    named = tag("title", f"{alarm.name} from step {alarm.step}")
    return tag(
        "g",
        tag("rect", x=start, y=_TOP, width=max(1.5, round(end - start, 1)), height=height - _TOP),
        named,
        class_="alarmed",
    )


def _line(line: Line, across: _Scale, up: _Scale) -> Html:
    from thresher.train.monitoring.plots import smoothed

    xs, ys = [x for x, _ in line.curve], [y for _, y in line.curve]
    noisy = len(ys) >= _SMOOTH_FROM
    pieces = [_polyline(xs, ys, across, up, "thin" if noisy else "line")]
    if noisy:
        pieces.append(_polyline(xs, smoothed(ys), across, up, "line"))
    if len(ys) < 30:
        pieces += [tag("circle", cx=across(x), cy=up(y), r=2) for x, y in zip(xs, ys, strict=True)]
    named = tag("title", line.name) if line.name else None
    return tag("g", named, pieces, class_=f"r{line.colour % COLOURS}", data_of=f"r{line.colour}")


def _polyline(xs: Sequence[float], ys: Sequence[float], across: _Scale, up: _Scale, class_: str) -> Html:
    points = zip(stretches(xs, _POINTS), stretches(ys, _POINTS), strict=True)
    return tag("polyline", points=" ".join(f"{across(x)},{up(y)}" for x, y in points), class_=class_)
