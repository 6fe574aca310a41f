"""How figures of an evaluation are written: the same in a terminal, in Markdown, on the page and in pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

NONE = "–"
"""Stands where there is no value."""

Form = Callable[[Any], str]


def known(value: object) -> float | None:
    """A finite number as it is; None for anything else, so that a figure that is no number is no value."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    return None


def percent(value: object) -> str:
    """A share in [0, 1] in percent, one decimal, without the sign: `77.6`."""
    number = known(value)
    return NONE if number is None else f"{100 * number:.1f}"


def points(value: object) -> str:
    """A difference of shares in percentage points, with its sign: `+13.6`."""
    number = known(value)
    return NONE if number is None else signed(100 * number, 1)


def count(value: object) -> str:
    """A whole number with thousands apart: `12,921`."""
    number = known(value)
    return NONE if number is None else f"{number:,.0f}"


def tokens_change(value: object) -> str:
    """A difference of tokens, with its sign: `+12,921`."""
    number = known(value)
    return NONE if number is None else signed(number, 0)


def few(value: object) -> str:
    """A mean of small counts, one decimal: `14.4`."""
    number = known(value)
    return NONE if number is None else f"{number:,.1f}"


def seconds(value: object) -> str:
    """Seconds in about three digits: `0.016`, `1.25`, `12.5`, `431`."""
    number = known(value)
    return NONE if number is None else f"{number:,.{_second_decimals(number)}f}"


def seconds_change(value: object) -> str:
    """A difference of seconds, with its sign: `+0.235`."""
    number = known(value)
    return NONE if number is None else signed(number, _second_decimals(number))


def ratio(value: object) -> str:
    """How many times as much: `× 15.7`."""
    number = known(value)
    return NONE if number is None else f"× {number:,.{2 if abs(number) < 10 else 1 if abs(number) < 100 else 0}f}"


def money(value: object) -> str:
    """An amount with as many decimals as it needs to say something: searches cost fractions of a cent."""
    number = known(value)
    if number is None:
        return NONE
    return f"{number:,.{2 if number >= 1 or number == 0 else 4 if number >= 0.001 else 6}f}"


def signed(number: float, decimals: int) -> str:
    """A number with its sign; only zero itself has none, so that `+0.0` is a little more than nothing."""
    return f"{number:+,.{decimals}f}" if number else f"{0:.{decimals}f}"


def _second_decimals(number: float) -> int:
    return 3 if abs(number) < 1 else 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference with the bounds of its 95 % interval; `n`: questions that were compared."""

    mean: float
    low: float
    high: float
    n: int | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0 or self.high < 0

    def bounds(self, form: Form) -> str:
        """`+11.0 to +16.3`."""
        return f"{form(self.low)} to {form(self.high)}"


def interval(data: object) -> Interval | None:
    """Read a difference; None where there is none."""
    if not isinstance(data, Mapping):
        return None
    mean, low, high = (known(data.get(name)) for name in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    n = known(data.get("n"))
    return Interval(mean, low, high, None if n is None else int(n))


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a summary.

    Attributes:
        key: its name in the data.
        name: what a column calls it.
        form: how a value is written.
        change: how a difference is written.
        zero: whether a column in which all is 0 says something.
        less: whether less of it is better.
    """

    key: str
    name: str
    form: Form = percent
    change: Form = points
    zero: bool = True
    less: bool = False


RECALL_10 = Measure("recall_10", "recall@10")
SPAN_RECALL = Measure("span_recall", "span recall")
MAIN = (
    Measure("recall_5", "recall@5"),
    RECALL_10,
    Measure("all_gold_10", "all gold@10"),
    Measure("ndcg_10", "nDCG@10"),
    Measure("answer_found", "answer found"),
    Measure("searches", "searches", few),
    Measure("prompt_tokens", "prompt tokens", count),
    Measure("peak_context_tokens", "peak context", count),
    Measure("seconds_median", "seconds (median)", seconds),
    Measure("seconds_ratio", "× one search", ratio),
    Measure("failed", "failed", count, zero=False),
)
PAIRED = (
    *MAIN[:5],
    SPAN_RECALL,
    Measure("span_iou", "span IoU"),
    Measure("prompt_tokens", "prompt tokens", count, tokens_change, less=True),
    Measure("seconds", "seconds", seconds, seconds_change, less=True),
)
SPANS = (SPAN_RECALL, Measure("span_precision", "span precision"), Measure("span_iou", "span IoU"))
TOKENS = (
    Measure("completion_tokens", "completion tokens", count, zero=False),
    Measure("cached_tokens", "cached prompt tokens", count),
    Measure("reprefill_tokens", "re-prefilled tokens", count, zero=False),
    Measure("returned_tokens", "returned tokens", count),
    Measure("seconds_mean", "seconds (mean)", seconds),
    Measure("seconds_p95", "seconds (p95)", seconds),
)
WORK = (
    Measure("precision", "precision"),
    Measure("trajectory_recall", "trajectory recall"),
    Measure("answer_right", "answer right"),
    Measure("turns", "turns", few),
    Measure("calls", "calls", few),
    Measure("pruned", "passages pruned", count, zero=False),
    Measure("prune_accuracy", "prune accuracy"),
    Measure("recoveries", "recoveries", count, zero=False),
)
SWARM = (
    Measure("subagents", "sub-agents", few),
    Measure("useful_subagents", "useful sub-agents", few),
    Measure("critical_steps", "critical steps", few),
    Measure("speedup", "speed-up", ratio),
)
ABSTENTION = (
    Measure("abstention_precision", "precision"),
    Measure("abstention_recall", "recall"),
    Measure("abstention_f1", "F1"),
)


def day_and_time(iso: object) -> str:
    """`2026-12-01 03:10 UTC`; what is no date as it stands."""
    try:
        moment = datetime.fromisoformat(str(iso))
    except ValueError:
        return str(iso)
    zone = moment.strftime(" %Z") if moment.tzinfo else ""
    return f"{moment:%Y-%m-%d %H:%M}{zone}"
