"""The gate: is a candidate better than what is live, on a fixed suite, question by question?

Both search the same question; what counts is the difference. After each question the test may stop (`sequential.py`),
and a candidate that is no better passes with a chance of at most `alpha`, however often one looks. A candidate that
passes must also cost no more than the guards allow.

The suite is one draw of questions, and stays the same from round to round: the level holds for each round, not for a
candidate that was picked with an eye on the suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from thresher.train.loop.sequential import evidence, log_capital
from thresher.train.loop.settings import GateSettings, Guards
from thresher.train.metrics.retrieval import mean

Outcome = Literal["better", "worse", "undecided"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One search of a question of the suite.

    Attributes:
        score: what it was worth, in [0, 1].
        well_formed: all its calls could be run; `failed`: it broke, and was not kept by an infrastructure fault.
        abstained: it returned nothing, or said that the evidence does not suffice.
        fault: an infrastructure fault; such a question says nothing of the policy.
    """

    score: float
    seconds: float
    tokens: int
    well_formed: bool = True
    failed: bool = False
    abstained: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Both searches of one question."""

    question: str
    live: Measure
    candidate: Measure


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test has found.

    Attributes:
        outcome: `undecided`: nothing was shown.
        over: nothing more is to be waited for.
        reasons: in words; `figures`: plain values.
    """

    outcome: Outcome
    over: bool
    reasons: tuple[str, ...]
    figures: dict[str, Any]


OnPair = Callable[[int, Pair], None]


def gate(pairs: Iterable[Pair], settings: GateSettings, *, on_pair: OnPair | None = None) -> Verdict:
    """Take pairs until it is known which is better, or there are no more.

    Pairs in which either was kept by a fault do not count; where that is a tenth of them, nothing is decided.
    """
    counted: list[Pair] = []
    faults: list[Pair] = []
    for number, pair in enumerate(pairs, 1):
        if on_pair is not None:
            on_pair(number, pair)
        if pair.live.fault is not None or pair.candidate.fault is not None:
            faults.append(pair)
            continue
        counted.append(pair)
        found = compared(counted, settings)
        if found != "undecided":
            return _verdict(found, counted, faults, settings)
    return _verdict("undecided", counted, faults, settings)


def compared(pairs: Sequence[Pair], settings: GateSettings) -> Outcome:
    """Which is better by the score alone, as far as is known."""
    if len(pairs) < settings.minimum:
        return "undecided"
    gains = _gains(pairs)
    if log_capital(gains).max() >= math.log(1 / settings.alpha):
        return "better"
    if log_capital([-gain for gain in gains]).max() >= math.log(1 / settings.worse_alpha):
        return "worse"
    return "undecided"


def breaches(pairs: Sequence[Pair], guards: Guards) -> list[str]:
    """Guards that the candidate does not keep, in words."""
    found = []
    for name in ("well_formed", "failed", "abstained"):
        live, own = _share(pairs, name, "live"), _share(pairs, name, "candidate")
        worse = live - own if name == "well_formed" else own - live
        if worse > getattr(guards, name) + 1e-9:
            found.append(f"guard {name}: {own:.1%} of its searches, {live:.1%} of the live release's")
    for name in ("seconds", "tokens"):
        live, own = _total(pairs, name, "live"), _total(pairs, name, "candidate")
        if live > 0 and own / live > getattr(guards, name):
            found.append(f"guard {name}: {own / live:.2f} times those of the live release")
    return found


def _verdict(outcome: Outcome, pairs: list[Pair], faults: list[Pair], settings: GateSettings) -> Verdict:
    shown = evidence(_gains(pairs), alpha=settings.alpha)
    figures = {
        "questions": len(pairs),
        "faults": len(faults),
        "metric": settings.metric,
        "gain": asdict(shown),
        **{
            arm: {
                "score": mean(getattr(pair, arm).score for pair in pairs),
                **{name: _share(pairs, name, arm) for name in ("well_formed", "failed", "abstained")},
                **{name: _total(pairs, name, arm) for name in ("seconds", "tokens")},
            }
            for arm in ("live", "candidate")
        },
    }
    if shown.mean is None:
        return Verdict("undecided", True, ("no question could be searched by both",), figures)
    gain = f"{shown.mean:+.3f} a question ({shown.low:+.3f} to {shown.high:+.3f}) over {len(pairs)} questions"
    if len(faults) * 10 >= len(pairs) + len(faults):
        return Verdict("undecided", True, (f"{len(faults)} questions could not be searched for faults", gain), figures)
    if outcome == "undecided":
        return Verdict(outcome, True, (f"the suite does not tell them apart: {gain}",), figures)
    broken = breaches(pairs, settings.guards) if outcome == "better" else []
    if broken:
        return Verdict("worse", True, (*broken, f"though by score {gain}"), figures)
    return Verdict(outcome, True, (f"{outcome} by {gain}",), figures)


def _gains(pairs: Sequence[Pair]) -> list[float]:
    return [pair.candidate.score - pair.live.score for pair in pairs]


def _share(pairs: Sequence[Pair], name: str, arm: str) -> float:
    return mean(float(getattr(getattr(pair, arm), name)) for pair in pairs) or 0.0


def _total(pairs: Sequence[Pair], name: str, arm: str) -> float:
    return math.fsum(float(getattr(getattr(pair, arm), name)) for pair in pairs)
