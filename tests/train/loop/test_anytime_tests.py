"""Sequential tests: level under optional stopping whatever the values look like, power, symmetry, order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.loop.sequential import (
    differences,
    evidence,
    first_beyond,
    interval,
    log_capital,
    wilson,
)

ALPHA = 0.05
RUNS = 2_000
values = st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=60)


def ever(x: np.ndarray, bound: float = 1.0, alpha: float = ALPHA) -> int:
    """How many runs are called better at any look."""
    return int((first_beyond(log_capital(x, bound), alpha) > 0).sum())


def stays_below(count: int, alpha: float = ALPHA, runs: int = RUNS) -> bool:
    """Whether a count is what a rate of at most `alpha` gives: it fails by chance once in 10,000 times."""
    return count <= runs * alpha + 3.7 * math.sqrt(runs * alpha * (1 - alpha))


NULLS = {
    "coins": lambda dice, shape: dice.choice([-1.0, 1.0], size=shape),
    "mostly equal": lambda dice, shape: dice.choice([-1.0, 0.0, 1.0], p=[0.02, 0.96, 0.02], size=shape),
    "small": lambda dice, shape: dice.normal(scale=0.05, size=shape).clip(-1, 1),
    "skewed": lambda dice, shape: dice.choice([-0.1, 0.9], p=[0.9, 0.1], size=shape),
    "skewed the other way": lambda dice, shape: dice.choice([-0.9, 0.1], p=[0.1, 0.9], size=shape),
    "worse": lambda dice, shape: dice.choice([-1.0, 1.0], p=[0.55, 0.45], size=shape),
}


@pytest.mark.parametrize("null", NULLS)
def test_what_is_no_better_is_called_better_at_most_as_often_as_said_however_often_one_looks(null: str) -> None:
    x = NULLS[null](np.random.default_rng(1), (RUNS, 500))
    assert stays_below(ever(x))


def test_the_level_is_not_met_by_never_deciding() -> None:
    dice = np.random.default_rng(2)
    small = first_beyond(log_capital(dice.choice([-1.0, 0.0, 1.0], p=[0.05, 0.75, 0.2], size=(500, 300))), ALPHA)
    large = first_beyond(log_capital(dice.choice([-1.0, 0.0, 1.0], p=[0.05, 0.35, 0.6], size=(500, 300))), ALPHA)
    assert (small > 0).mean() > 0.95
    assert (large > 0).all()
    assert np.median(large) < np.median(small[small > 0]) / 2  # a large difference is seen sooner


def test_a_test_of_fixed_size_that_is_looked_at_again_and_again_breaks_its_level() -> None:
    """What this is for: the usual z-test, looked at after each value, is wrong far more often than it says."""
    x = NULLS["coins"](np.random.default_rng(3), (RUNS, 500))
    count = np.arange(1, 501)
    z = np.cumsum(x, axis=1) / np.sqrt(count)
    assert (z[:, 20:] > 1.645).any(axis=1).mean() > 4 * ALPHA


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("rate", [0.03, 0.5, 0.9])
def test_two_equal_arms_are_told_apart_at_most_as_often_as_said(share: float, rate: float) -> None:
    dice = np.random.default_rng(4)
    dealt = dice.random((RUNS, 400)) < share
    outcomes = (dice.random(dealt.shape) < rate).astype(float)
    for canary in (dealt, ~dealt):  # by both sides
        x, bound = differences(outcomes, canary, share if canary is dealt else 1 - share)
        assert stays_below(ever(x, bound))


def test_users_who_change_in_the_course_of_time_make_no_difference_between_arms() -> None:
    """A bad morning and a good evening, for both arms alike."""
    dice = np.random.default_rng(5)
    dealt = dice.random((RUNS, 400)) < 0.2
    rate = np.linspace(0.1, 0.9, 400)
    x, bound = differences((dice.random(dealt.shape) < rate).astype(float), dealt, 0.2)
    assert stays_below(ever(x, bound))


def test_the_difference_of_arms_is_estimated_without_bias() -> None:
    dice = np.random.default_rng(6)
    dealt = dice.random(200_000) < 0.2
    outcomes = (dice.random(dealt.shape) < np.where(dealt, 0.6, 0.45)).astype(float)
    x, bound = differences(outcomes, dealt, 0.2)
    assert np.abs(x).max() <= bound
    assert x.mean() == pytest.approx(0.15, abs=0.01)


@given(values)
def test_both_sides_are_treated_alike(x: list[float]) -> None:
    one, other = evidence(x), evidence([-value for value in x])
    assert (one.above, one.below) == pytest.approx((other.below, other.above))
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)


@given(values, st.randoms(use_true_random=False))
def test_the_order_of_values_does_not_change_what_they_say_together(x: list[float], random: object) -> None:
    shuffled = list(x)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert log_capital(shuffled)[-1] == pytest.approx(log_capital(x)[-1], abs=1e-9)


@given(values, st.floats(0.5, 20))
def test_the_unit_of_values_does_not_count(x: list[float], unit: float) -> None:
    assert log_capital(np.array(x) * unit, unit) == pytest.approx(log_capital(x), abs=1e-9)


@given(values, st.integers(0, 59))
def test_a_better_value_never_speaks_against(x: list[float], place: int) -> None:
    better = list(x)
    better[place % len(x)] = 1.0
    assert log_capital(better)[-1] >= log_capital(x)[-1] - 1e-9


@given(values)
def test_more_values_change_no_earlier_look(x: list[float]) -> None:
    assert log_capital([*x, 1.0, -1.0])[: len(x)] == pytest.approx(log_capital(x))
    dealt = [n % 3 == 0 for n in range(len(x) + 2)]
    longer, _ = differences([*x, 1.0, -1.0], dealt, 0.3, low=-1)
    shorter, _ = differences(x, dealt[: len(x)], 0.3, low=-1)
    assert longer[: len(x)] == pytest.approx(shorter)


def test_the_interval_holds_the_mean_at_every_look() -> None:
    dice = np.random.default_rng(7)
    missed = 0
    for _ in range(200):
        x = dice.choice([-1.0, 0.0, 1.0], p=[0.2, 0.4, 0.4], size=160)
        looks = [interval(x[:n], 1.0, alpha=ALPHA, widest=1.0) for n in (10, 40, 160)]
        missed += any(not low <= 0.2 <= high for low, high in looks)
    assert stays_below(missed, runs=200)
    low, high = looks[-1]
    assert high - low < 0.5  # and says something


def test_values_out_of_bounds_are_refused() -> None:
    for wrong in ([1.5], [float("nan")], [-2.0]):
        with pytest.raises(ValueError, match=r"\[-1, 1\]"):
            log_capital(wrong)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        differences([2.0], [True], 0.5)
    with pytest.raises(ValueError, match="share"):
        differences([1.0], [True], 1.0)


def test_nothing_is_decided_before_the_minimum() -> None:
    logs = log_capital([1.0] * 50)
    soon = int(first_beyond(logs, ALPHA))
    assert 0 < soon < 30
    assert int(first_beyond(logs, ALPHA, minimum=30)) == 30
    assert int(first_beyond(logs, ALPHA, minimum=51)) == 0
    assert int(first_beyond(np.zeros((3, 0)), ALPHA).sum()) == 0


def test_what_was_refuted_stays_refuted() -> None:
    """The level covers that it was reached once: later values cannot take it back."""
    logs = log_capital([1.0] * 20 + [-1.0] * 200)
    assert logs[-1] < 0
    assert int(first_beyond(logs, ALPHA)) > 0


def test_an_interval_of_a_counted_rate() -> None:
    low, high = wilson(5, 100)
    assert (round(low, 3), round(high, 3)) == (0.022, 0.112)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 50)[0] == 0.0
