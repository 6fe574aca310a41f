"""What a figure comes to beside its goal and its competitor, in words that are computed and not typed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """`MET` and `MISSED` are said of goals, the others of competitors; `TOLD`: there is neither."""

    MET = "met"
    MISSED = "missed"
    AHEAD = "ahead"
    LEVEL = "no difference shown"
    LOSES = "loses"
    TOLD = "told"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the summary."""

    what: str
    figure: str
    verdict: Verdict
    goal: str = ""
    beside: str = ""

    @property
    def bad(self) -> bool:
        """Whether it belongs under "where we lose"."""
        return self.verdict in (Verdict.MISSED, Verdict.LOSES)


def goal(
    what: str, value: float, *, most: float | None = None, least: float | None = None, form: str = "{:g}"
) -> Finding:
    """A figure with a bound above or below it."""
    assert (most is None) != (least is None)
    bound = most if most is not None else least
    met = value <= bound if most is not None else value >= bound  # type: ignore[operator]
    sign = "≤" if most is not None else "≥"
    verdict = Verdict.MET if met else Verdict.MISSED
    return Finding(what, form.format(value), verdict, goal=f"{sign} {form.format(bound)}")


def beside(
    what: str, ours: float, theirs: float, name: str, *, less_is_better: bool = True, form: str = "{:g}"
) -> Finding:
    """A figure with a competitor's of the same run; the ratio is ours over theirs."""
    ratio = ours / theirs if theirs else float("inf")
    better = ratio < 1 if less_is_better else ratio > 1
    verdict = Verdict.LEVEL if ratio == 1 else Verdict.AHEAD if better else Verdict.LOSES
    return Finding(what, form.format(ours), verdict, beside=f"{name}: {form.format(theirs)} (ours × {ratio:.2f})")


def gain(what: str, interval: dict[str, Any] | None, name: str, *, factor: float = 100, digits: int = 1) -> Finding:
    """A paired difference: ahead or behind only where its 95 % interval does not hold 0."""
    if interval is None:
        return Finding(what, "–", Verdict.TOLD, beside=f"{name}: nothing to compare")
    mean, low, high = (factor * interval[key] for key in ("mean", "low", "high"))
    verdict = Verdict.AHEAD if low > 0 else Verdict.LOSES if high < 0 else Verdict.LEVEL
    figure = f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"
    return Finding(what, figure, verdict, beside=name)


def told(what: str, figure: str) -> Finding:
    """A figure by itself."""
    return Finding(what, figure, Verdict.TOLD)
