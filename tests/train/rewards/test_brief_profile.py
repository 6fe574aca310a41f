"""The cost of what was written and of turns: concave, and never so dear that giving up is better than finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_support import PLAIN

from thresher.train.rewards import PROFILES, load_profile, reward_of
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.terms import length_cost, steps_cost

FORMS = st.tuples(st.floats(0.1, 5), st.floats(0.05, 2))


def cost(tokens: int, steps: int, k: float, q: float) -> tuple[float, float]:
    facts = replace(PLAIN, completion_tokens=tokens, turns=min(steps, 3), critical_steps=steps)
    return length_cost(facts, scale=1_000, k=k, q=q), steps_cost(facts, scale=8, k=k, q=q)


@given(st.integers(0, 100_000), st.integers(1, 5_000), st.integers(0, 120), st.integers(1, 40), FORMS)
def test_costs_rise_and_each_further_unit_costs_less(
    tokens: int, more_tokens: int, steps: int, more: int, form: tuple[float, float]
) -> None:
    here = cost(tokens, steps, *form)
    there = cost(tokens + more_tokens, steps + more, *form)
    beyond = cost(tokens + 2 * more_tokens, steps + 2 * more, *form)
    for one, two, three in zip(here, there, beyond, strict=True):
        assert 0 <= one < two < three
        assert three - two <= two - one + 1e-9


def test_nothing_costs_nothing() -> None:
    assert cost(0, 0, 1.0, 0.5) == (0.0, 0.0)
    assert cost(3_000, 24, 1.0, 0.5) == (pytest.approx(2.0), pytest.approx(2.0))


def test_sub_agents_that_ran_at_once_count_once() -> None:
    side_by_side = replace(PLAIN, turns=4, critical_steps=6)
    one_by_one = replace(PLAIN, turns=4, critical_steps=12)
    assert steps_cost(side_by_side, scale=8, k=1, q=0.5) < steps_cost(one_by_one, scale=8, k=1, q=0.5)


@given(st.integers(0, 60_000), st.integers(1, 64))
def test_a_long_search_that_finds_is_worth_more_than_a_short_one_that_does_not(tokens: int, steps: int) -> None:
    """At its worst, 60,000 tokens and 64 turns, the cost is less than what a second of two documents is worth."""
    brief = PROFILES["brief"]
    long = replace(PLAIN, completion_tokens=tokens, turns=steps, critical_steps=steps, turns_left=0.0)
    half = replace(PLAIN, returned=("a",), answer_returned=False, sufficient=False, completion_tokens=0, turns=1)
    none: Facts = replace(half, returned=(), critical_steps=1)
    assert reward_of(long, brief).total > reward_of(half, brief).total > reward_of(none, brief).total


def test_of_two_searches_that_find_the_same_the_shorter_earns_more() -> None:
    brief, usual = PROFILES["brief"], PROFILES["context1"]
    longer = replace(PLAIN, completion_tokens=4_000)
    slower = replace(PLAIN, turns=12, critical_steps=12)
    for other in (longer, slower):
        assert reward_of(PLAIN, brief).total > reward_of(other, brief).total
        assert reward_of(PLAIN, usual).total == reward_of(other, usual).total
    parts = reward_of(longer, brief).parts
    assert parts["length"] == pytest.approx(-0.03 * 2 * (5**0.5 - 1))


def test_other_weights_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "quick.toml"
    path.write_text('base = "brief"\nlength = 0\nsteps = 0.1\nsteps_scale = 4\n')
    quick = load_profile(str(path))
    assert (quick.length, quick.steps, quick.steps_scale) == (0, 0.1, 4)
    assert reward_of(PLAIN, quick).parts["length"] == 0
    assert reward_of(PLAIN, quick).parts["steps"] == pytest.approx(-0.1 * 2 * (2**0.5 - 1))
