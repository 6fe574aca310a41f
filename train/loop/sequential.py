"""Tests that may be looked at after every observation, and stopped when one likes: betting on means of bounded values.

Somebody who does not believe that the mean is at most m bets on it: a capital of 1 becomes Π (1 + λ (x − m)), which
never falls below zero while λ is small enough for the bounds of x. If the mean is at most m, then no bet gains on
average, and by Ville's inequality the capital ever exceeds 1/α with a chance of at most α, whenever one looks and for
whatever reason one stops. Nothing but the bounds is assumed of how x is distributed.

The bet is shared out over several λ and their capitals averaged, so that small and large differences are both found
soon, and the order of the observations hardly matters. Source: Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting" (JRSS B, 2023), the grid of bets of their section on diversified Kelly betting.

For two arms that requests are dealt to by chance, x is the difference with each arm weighted by the inverse of its
chance, around what both earned on average so far; its mean is the difference of the arms' means. Source: Horvitz and
Thompson (1952); for sequential experiments Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric,
nonasymptotic confidence sequences" (2021), section 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BETS = 12
"""How many bets a capital is shared out over."""
SMALLEST, LARGEST = 0.01, 0.9
"""Shares of the largest bet that cannot ruin; the bets lie between them, each larger than the last by one factor."""


def log_capital(values: ArrayLike, bound: float = 1.0) -> Floats:
    """Logarithm of the capital of who bets that the mean is above 0, after each value.

    Args:
        values: shape (…, n), in [-bound, bound], in the order in which they came.

    Returns:
        Shape (…, n). Where it ever reaches log(1/α), a mean of at most 0 is refuted at level α.

    Raises:
        ValueError: a value is out of bounds, or no number.
    """
    found = np.asarray(values, dtype=np.float64)
    if not bound > 0 or not np.all(np.abs(found) <= bound * (1 + 1e-9)):  # a NaN is not within bounds either
        raise ValueError(f"values must lie in [-{bound:g}, {bound:g}]")
    bets = np.geomspace(SMALLEST, LARGEST, BETS) / bound
    total: Floats | None = None
    for bet in bets:  # one after the other: values may be many runs beside each other
        own = np.cumsum(np.log1p(bet * found), axis=-1)
        total = own if total is None else np.logaddexp(total, own)
    assert total is not None
    return np.asarray(total - math.log(BETS))


def differences(
    outcomes: ArrayLike, canary: ArrayLike, share: float, *, low: float = 0.0, high: float = 1.0
) -> tuple[Floats, float]:
    """What a test of two arms looks at: values whose mean is that of the canary less that of the live arm.

    Args:
        outcomes: shape (…, n), in [low, high]; `canary`: whether each is of the canary, same shape.
        share: the chance with which each was dealt to the canary, in (0, 1), whatever its user or question.

    Returns:
        The values, and their bound.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share must lie in (0, 1), got {share:g}")
    found = np.asarray(outcomes, dtype=np.float64)
    if not np.all((found >= low - 1e-9) & (found <= high + 1e-9)):
        raise ValueError(f"outcomes must lie in [{low:g}, {high:g}]")
    dealt = np.asarray(canary, dtype=bool)
    before = np.concatenate([np.zeros((*found.shape[:-1], 1)), np.cumsum(found, axis=-1)[..., :-1]], axis=-1)
    # What was known before each, beginning in the middle. It takes nothing from the mean, and most of the variance.
    centre = (before + (low + high) / 2) / np.arange(1, found.shape[-1] + 1)
    weight = np.where(dealt, 1 / share, -1 / (1 - share))
    return weight * (found - centre), max(1 / share, 1 / (1 - share)) * (high - low)


def first_beyond(logs: Floats, alpha: float, *, minimum: int = 1) -> NDArray[np.int64]:
    """After how many observations, from `minimum` on, a capital has ever reached 1/α; 0 where it never has.

    Args:
        logs: shape (…, n).

    Returns:
        Shape (…).
    """
    if logs.shape[-1] == 0:
        return np.zeros(logs.shape[:-1], dtype=np.int64)
    reached = np.maximum.accumulate(logs, axis=-1) >= math.log(1 / alpha)
    reached[..., : minimum - 1] = False
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What values say of their mean, after all of them.

    Attributes:
        mean: None without values; `low`, `high`: of the interval that holds at every look, each side at level
            1 − `alpha`: it lies above 0 where a test of that level says so.
        above, below: the largest capital so far of who bets on a mean above 0, and below it; 20 is level 5 %.
    """

    count: int
    mean: float | None
    low: float
    high: float
    above: float
    below: float
    alpha: float


def evidence(values: ArrayLike, bound: float = 1.0, *, alpha: float = 0.05, widest: float | None = None) -> Evidence:
    """Mean, interval and capitals of values in [-bound, bound]. `widest`: the mean lies in [-widest, widest]."""
    found = np.asarray(values, dtype=np.float64)
    limit = bound if widest is None else widest
    if not len(found):
        return Evidence(0, None, -limit, limit, 1.0, 1.0, alpha)
    above, below = log_capital(found, bound).max(), log_capital(-found, bound).max()
    low, high = interval(found, bound, alpha=2 * alpha, widest=limit)
    return Evidence(len(found), float(found.mean()), low, high, _exp(above), _exp(below), alpha)


def interval(values: ArrayLike, bound: float, *, alpha: float, widest: float, steps: int = 100) -> tuple[float, float]:
    """The means that the values do not refute, at level α for both sides together, now or at any look.

    Every candidate mean m is bet against from both sides, with α/2 each.
    """
    found = np.asarray(values, dtype=np.float64)
    candidates = np.linspace(-widest, widest, 2 * steps + 1)
    bets = np.geomspace(SMALLEST, LARGEST, BETS)
    threshold = math.log(2 / alpha) + math.log(BETS)
    kept = []
    for mean in candidates.tolist():
        moved, reach = found - mean, bound + abs(mean)
        logs = np.log1p(bets[:, None] / reach * moved).sum(axis=1), np.log1p(-bets[:, None] / reach * moved).sum(axis=1)
        if all(np.logaddexp.reduce(own) < threshold for own in logs):
            kept.append(mean)
    mean = float(np.clip(found.mean(), -widest, widest))
    step = widest / steps  # the ends lie between two candidates: outwards
    low, high = (kept[0], kept[-1]) if kept else (mean, mean)
    return max(-widest, low - step), min(widest, high + step)


def wilson(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Interval of a share, for rates that were counted (Wilson, 1927); 95 % by default."""
    if not of:
        return 0.0, 1.0
    share = count / of
    centre = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, centre - half), min(1.0, centre + half)


def _exp(log: float) -> float:
    return float(np.exp(min(log, 700.0)))
