"""The gate: better passes, worse and equal do not, it stops as soon as it knows, and gains buy no breach of a guard."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from thresher.train.loop.gate import Measure, Pair, breaches, compared, gate
from thresher.train.loop.settings import GateSettings, Guards

SETTINGS = GateSettings(suite="set", minimum=10)


def pairs(count: int, *, gain: float = 0.0, noise: float = 0.3, seed: int = 0, **candidate: object) -> Iterator[Pair]:
    """Questions on which the candidate scores `gain` more on average."""
    dice = random.Random(seed)
    for number in range(count):
        level = dice.uniform(0.3, 0.7)
        own = min(1.0, max(0.0, level + gain + dice.uniform(-noise, noise)))
        live = Measure(level, 1.0, 1_000)
        yield Pair(f"q{number}", live, replace(Measure(own, 1.0, 1_000), **candidate))  # type: ignore[arg-type]


def test_better_passes_and_the_rest_is_not_searched() -> None:
    stream = pairs(500, gain=0.25)
    verdict = gate(stream, SETTINGS)
    assert (verdict.outcome, verdict.over) == ("better", True)
    assert verdict.figures["questions"] < 100
    assert len(list(stream)) == 500 - verdict.figures["questions"]
    assert verdict.figures["gain"]["low"] >= 0
    assert verdict.figures["candidate"]["score"] > verdict.figures["live"]["score"]


def test_worse_is_called_worse_and_equal_is_undecided() -> None:
    assert gate(pairs(300, gain=-0.25), SETTINGS).outcome == "worse"
    same = gate(pairs(300, noise=0.0), SETTINGS)
    assert (same.outcome, same.over, same.figures["questions"]) == ("undecided", True, 300)
    assert "does not tell them apart" in same.reasons[0]


def test_equal_passes_at_most_one_time_in_twenty_with_a_look_after_each_question() -> None:
    runs = 300
    passed = sum(
        next((True for n in range(10, 121, 5) if compared(own[:n], SETTINGS) == "better"), False)
        for seed in range(runs)
        for own in (list(pairs(120, seed=seed)),)
    )
    assert passed <= runs * 0.05 + 3.7 * math.sqrt(runs * 0.05 * 0.95)


def test_both_sides_are_treated_alike() -> None:
    settings = SETTINGS.model_copy(update={"worse_alpha": SETTINGS.alpha})
    mirror = {"better": "worse", "worse": "better", "undecided": "undecided"}
    for seed, gain in enumerate((0.3, 0.1, 0.0, -0.2)):
        own = list(pairs(60, gain=gain, seed=seed))
        turned = [Pair(pair.question, pair.candidate, pair.live) for pair in own]
        assert compared(turned, settings) == mirror[compared(own, settings)]


def test_nothing_is_decided_before_the_minimum() -> None:
    wide = SETTINGS.model_copy(update={"minimum": 80})
    assert gate(pairs(79, gain=0.3), wide).outcome == "undecided"
    assert gate(pairs(80, gain=0.3), wide).outcome == "better"


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        ({"well_formed": False}, "guard well_formed: 0.0% of its searches, 100.0% of the live release's"),
        ({"failed": True}, "guard failed"),
        ({"abstained": True}, "guard abstained"),
        ({"seconds": 1.6}, "guard seconds: 1.60 times"),
        ({"tokens": 2_000}, "guard tokens: 2.00 times"),
    ],
)
def test_a_gain_buys_no_regression(cost: dict[str, object], says: str) -> None:
    verdict = gate(pairs(300, gain=0.25, **cost), SETTINGS)
    assert verdict.outcome == "worse"
    assert verdict.reasons[0].startswith(says)


def test_guards_leave_room_for_what_is_allowed() -> None:
    own = list(pairs(100, gain=0.25))
    own[0] = replace(own[0], candidate=replace(own[0].candidate, well_formed=False, failed=True, seconds=20.0))
    assert breaches(own, Guards()) == []


def test_faults_say_nothing_of_a_policy() -> None:
    own = list(pairs(200, gain=0.25))
    broken = replace(own[0].candidate, score=0.0, fault="the model's server is away")
    few = [replace(pair, candidate=broken) if number % 20 == 0 else pair for number, pair in enumerate(own)]
    assert gate(few, SETTINGS).outcome == "better"
    many = [replace(pair, live=broken) if number % 3 == 0 else pair for number, pair in enumerate(own)]
    verdict = gate(many, SETTINGS)
    assert verdict.outcome == "undecided"
    assert "could not be searched for faults" in verdict.reasons[0]


def test_a_suite_that_cannot_be_searched_decides_nothing() -> None:
    assert gate([], SETTINGS).outcome == "undecided"
