"""Simulated users whose policy is known to be better, worse, equal or only quieter: what the canary makes of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from thresher.train.loop.settings import CanarySettings
from thresher.train.loop.simulated import Policy, Rates, Users, canaries, outcomes, visit

LIVE = Policy()
SETTINGS = CanarySettings(share=0.3, maximum=1_500)
RUNS = 400


def rates(candidate: Policy, live: Policy = LIVE, **given: object) -> Rates:
    options: dict[str, object] = {"runs": RUNS, "pool": 2_000, "seed": 1, **given}
    return canaries(live, candidate, SETTINGS, **options)  # type: ignore[arg-type]


def at_most(count: int, runs: int, rate: float) -> bool:
    """Whether a count is what a rate of at most `rate` gives; it fails by chance once in 10,000 times."""
    return count <= runs * rate + 3.7 * math.sqrt(runs * rate * (1 - rate))


def test_a_better_policy_is_promoted() -> None:
    found = rates(Policy(finds=0.8, first=0.7))
    assert found.promoted > 0.95 * RUNS
    assert found.users_promoted is not None
    assert found.users_promoted < 0.7 * SETTINGS.maximum


def test_a_worse_policy_is_rolled_back_and_never_promoted() -> None:
    found = rates(Policy(finds=0.4, first=0.3))
    assert found.rolled_back > 0.95 * RUNS
    assert found.promoted == 0


@pytest.mark.parametrize(
    "users",
    [
        Users(),
        Users(speaks=0.1),
        Users(speaks=1.0, rates=0.8, errs=0.2),
        Users(bias=2.0, tempted=0.5),
        Users(cites=0.0, rates=0.0, asks_again=0.0, leaves=0.0),
    ],
    ids=["usual", "silent", "loud", "hasty", "clicks alone"],
)
def test_an_equal_policy_is_promoted_at_most_one_time_in_twenty(users: Users) -> None:
    """With a look after every user."""
    found = rates(LIVE, users=users)
    assert at_most(found.promoted, RUNS, SETTINGS.alpha)
    assert at_most(found.rolled_back, RUNS, SETTINGS.worse_alpha)
    assert found.promoted + found.rolled_back + found.withdrawn == RUNS


def test_an_equal_policy_with_a_tiny_share_of_users_is_no_different() -> None:
    few = CanarySettings(share=0.02, maximum=1_500)
    found = canaries(LIVE, LIVE, few, runs=RUNS, pool=2_000, seed=2)
    assert at_most(found.promoted, RUNS, few.alpha)


def test_a_policy_that_silences_its_users_does_not_win() -> None:
    """It finds as much, and nobody objects any more; by means over those who spoke it would look splendid."""
    quiet = Policy(silences=1.0)
    seen = outcomes(quiet, Users(), 4_000, 3), outcomes(LIVE, Users(), 4_000, 4)
    known = [own["net"][(own["used"] > 0) | (own["harm"] > 0)].mean() for own in seen]
    assert known[0] > known[1] + 0.3  # what a careless reading would reward
    assert seen[0]["net"].mean() > seen[1]["net"].mean() + 0.1  # and one that takes silence for neutral
    assert at_most(rates(quiet).promoted, RUNS, SETTINGS.alpha)


def test_a_worse_policy_that_silences_its_users_is_rolled_back_all_the_same() -> None:
    found = rates(Policy(finds=0.35, first=0.3, silences=1.0))
    assert found.promoted == 0
    assert found.rolled_back > 0.8 * RUNS


def test_a_policy_whose_users_were_silent_before_must_still_be_better() -> None:
    """The live policy hears nothing from those it fails; one that lets them speak is judged by what it finds."""
    found = rates(Policy(finds=0.6), live=Policy(finds=0.6, silences=1.0))
    assert at_most(found.promoted, RUNS, SETTINGS.alpha)


def test_the_same_seed_gives_the_same_and_another_one_another() -> None:
    better = Policy(finds=0.7, first=0.6)
    assert rates(better, runs=50) == rates(better, runs=50)
    assert rates(better, runs=50) != rates(better, runs=50, seed=9)


def test_rates_are_told_with_intervals() -> None:
    found = Rates(400, 12, 20, 368, 900, None)
    assert found.told("promoted") == "3.0% (1.7% to 5.2%)"


# The users


def test_what_stands_on_top_is_opened_more_often_whatever_it_is() -> None:
    dice = np.random.default_rng(0)
    nowhere = Policy(finds=0.0)
    opened: list[str] = []
    for number in range(3_000):
        _, signals = visit(number, nowhere, Users(), dice)
        opened += [str(signal.value) for signal in signals if signal.kind == "opened"]
    counts = [opened.count(f"c{rank}") for rank in range(10)]
    assert counts[0] > 1.5 * counts[1] > 1.5 * counts[4]


def test_users_who_were_served_say_better_things() -> None:
    good, bad = (outcomes(Policy(finds=share, first=1.0), Users(), 2_000, 0) for share in (1.0, 0.0))
    assert good["used"].mean() > bad["used"].mean() + 0.2
    assert good["harm"].mean() < bad["harm"].mean() - 0.2


def test_nobody_is_heard_of_who_does_not_speak() -> None:
    quiet = replace(Users(), speaks=0.0)
    own = outcomes(LIVE, quiet, 200, 0)
    assert own["used"].max() == own["harm"].max() == 0.0
