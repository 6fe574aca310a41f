"""Discarding broken samples teaches a policy to break its calls; counting them as negative does not."""

from __future__ import annotations

import numpy as np
import pytest

from thresher.train.hacks.bandit import Bandit, Rule, learn

SEEDS = range(8)
PROMISING, BLEAK = 0, 1


@pytest.mark.parametrize("seed", SEEDS)
def test_discarding_broken_samples_is_learned_as_a_way_out(seed: int) -> None:
    learned = learn(Bandit(), Rule.DISCARDED, seed=seed)
    assert learned.broken[0, BLEAK] == pytest.approx(0.05)
    assert learned.broken[-1, BLEAK] > 0.9
    assert learned.broken[-1, PROMISING] < 0.05
    assert (np.diff(learned.broken[::50, BLEAK]) > 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_calls_vanish_where_they_are_negative_samples(seed: int) -> None:
    learned = learn(Bandit(), Rule.NEGATIVE, seed=seed)
    assert (learned.broken[-1] < 0.03).all()
    assert learned.solved[-1] > learned.solved[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_advantage_of_zero_is_no_better_than_discarding(seed: int) -> None:
    assert learn(Bandit(), Rule.UNSIGNED, seed=seed).broken[-1, BLEAK] > 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_the_measured_reward_climbs_while_fewer_tasks_are_done(seed: int) -> None:
    """What makes it hard to see: the curve that everybody looks at says that all is well."""
    learned = learn(Bandit(), Rule.DISCARDED, seed=seed)
    assert learned.measured[-20:].mean() > learned.measured[:5].mean() + 0.25
    assert learned.solved[-1] < learned.solved[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_cannot_tell_bleak_tries_learns_nothing_from_discarding(seed: int) -> None:
    """All that is left in a group is of one arm, and its advantages add up to zero."""
    learned = learn(Bandit(chances=(0.4,)), Rule.DISCARDED, seed=seed)
    np.testing.assert_allclose(learned.broken, 0.05, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broken_call_that_costs_as_much_as_a_failed_try_is_not_unlearned_where_tries_are_hopeless(seed: int) -> None:
    """So the penalty must come off below what a failed try earns."""
    tied = learn(Bandit(chances=(0.9, 0.0), broken=0.0), Rule.NEGATIVE, seed=seed, steps=600)
    apart = learn(Bandit(chances=(0.9, 0.0), broken=-0.5), Rule.NEGATIVE, seed=seed, steps=600)
    assert tied.broken[-1, BLEAK] > 3 * apart.broken[-1, BLEAK]
    assert apart.broken[-1, BLEAK] < 0.01


def test_a_seed_gives_one_history() -> None:
    one, other = learn(Bandit(), Rule.DISCARDED, seed=3), learn(Bandit(), Rule.DISCARDED, seed=3)
    np.testing.assert_array_equal(one.broken, other.broken)
    assert not np.array_equal(one.broken, learn(Bandit(), Rule.DISCARDED, seed=4).broken)


@pytest.mark.parametrize("wrong", [{"chances": ()}, {"chances": (1.5,)}, {"share": 0.0}, {"group": 1}, {"groups": 0}])
def test_a_bandit_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        Bandit(**wrong)  # type: ignore[arg-type]
