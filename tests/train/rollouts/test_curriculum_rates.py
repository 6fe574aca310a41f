"""Solve rates: what counts as solved, what is drawn by them, when a stage rises, and that a run goes on as it was."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_support import PLAIN

from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.curriculum import Curriculum, CurriculumError, CurriculumSettings, Stage
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.solving import SolveRate, closeness, is_solved
from thresher.train.tasks.task import Task

FOUND = PLAIN
MISSED = replace(PLAIN, returned=("x",), answer_returned=False)
NOTHING_THERE = replace(
    PLAIN, gold=frozenset(), reachable=frozenset(), returned=(), has_answers=False, answer_returned=False
)


def some(count: int, hops: int = 1) -> list[Task]:
    return [Task(f"t{n}", f"question {n}", hops=n % hops + 1) for n in range(count)]


def rolled(task: Task, *facts: Facts | None) -> Group:
    """A group with these facts; None is a fault."""
    rollouts = [
        Rollout(task, 0, n, None, own, None if own is None else Reward(float(own.answer_returned), {}, {}))
        for n, own in enumerate(facts)
    ]
    return Group(0, task, tuple(rollouts))


def solving(task: Task, share: float, size: int = 10) -> Group:
    """A group of which this share solved the task."""
    good = round(share * size)
    return rolled(task, *[FOUND] * good, *[MISSED] * (size - good))


@pytest.mark.parametrize(
    ("facts", "solved"),
    [
        (FOUND, True),
        (MISSED, False),
        (replace(FOUND, returned=("a", "x")), False),
        (replace(FOUND, gold=frozenset(), reachable=frozenset(), returned=("x",)), True),
        (replace(NOTHING_THERE, sufficient=False), True),
        (replace(NOTHING_THERE, sufficient=True), False),
        (replace(NOTHING_THERE, sufficient=None), False),
        (replace(NOTHING_THERE, sufficient=False, searches=0), False),
    ],
)
def test_solved_is_that_all_the_evidence_was_returned(facts: Facts, solved: bool) -> None:
    """Or the answer, where there is no gold, or an honest "there is nothing" behind a search."""
    [rollout] = rolled(Task("t", "?"), facts).rollouts
    assert is_solved(rollout, max_results=10) is solved
    assert is_solved(rollout, max_results=10, reward=2.0) is False, "a threshold goes before the facts"
    assert is_solved(rollout, max_results=10, reward=0.0) is True


def test_a_list_that_is_too_short_for_all_the_gold_is_enough_when_full_of_it() -> None:
    [rollout] = rolled(Task("t", "?"), replace(FOUND, returned=("a",))).rollouts
    assert is_solved(rollout, max_results=1)
    assert not is_solved(rollout, max_results=2)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=8), st.floats(0, 0.99))
def test_a_rate_is_a_share_that_the_latest_group_moves_most(groups: list[tuple[int, int]], keep: float) -> None:
    task, rate = Task("t", "?"), SolveRate()
    for good, bad in groups:
        before = rate.value
        rate = rate.after(rolled(task, *[FOUND] * good, *[MISSED] * bad, None), keep=keep, max_results=10)
        if not good + bad:
            assert rate.value == before, "faults count for nothing"
            continue
        own = good / (good + bad)
        assert rate.value is not None
        assert -1e-9 <= rate.value <= 1 + 1e-9
        if before is not None:
            assert min(own, before) - 1e-9 <= rate.value <= max(own, before) + 1e-9
            assert keep > 0 or rate.value == pytest.approx(own)
    if not any(good + bad for good, bad in groups):
        assert rate.value is None


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_closeness_is_full_in_the_band_and_falls_outside_of_it(one: float, other: float, rate: float) -> None:
    band = (min(one, other), max(one, other))
    near = closeness(rate, band)
    assert 0 <= near <= 1
    assert (near == 1) or not band[0] <= rate <= band[1]
    middle = (rate + (band[0] if rate < band[0] else band[1])) / 2
    assert closeness(middle, band) >= near - 1e-9, "it does not rise with the distance"


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).map(tuple),
    st.floats(0.01, 1),
    st.integers(0, 9),
)
def test_no_task_is_ever_drawn_never(rates: list[float], band: Any, least: float, seed: int) -> None:
    """Whatever became of it, a task has its share of the epochs; and no epoch is empty."""
    tasks = some(len(rates))
    curriculum = Curriculum(tasks, CurriculumSettings(seed=seed, band=band, least_share=least, constant_share=0.5))
    for task, rate in zip(islice(curriculum, len(tasks)), rates, strict=True):
        curriculum.settled(task, solving(task, rate))
    assert all(least <= curriculum.share(task) <= 1 for task in tasks)
    assert len(list(islice(curriculum, 3 * len(tasks)))) == 3 * len(tasks)


def test_tasks_in_the_band_are_drawn_more_often_than_others() -> None:
    tasks = some(30)
    shares = {task.id: (0.0, 0.5, 1.0)[number % 3] for number, task in enumerate(tasks)}
    curriculum = Curriculum(tasks, CurriculumSettings(band=(0.2, 0.8), least_share=0.2, epochs=60))
    seen: Counter[str] = Counter()
    for task in curriculum:
        seen[task.id] += 1
        curriculum.settled(task, solving(task, shares[task.id]))
    means = [sum(seen[task.id] for task in tasks[kind::3]) / 10 for kind in range(3)]
    assert means[1] == 60, "each epoch"
    assert 8 < means[0] < 18, "a fifth of them"
    assert 8 < means[2] < 18
    assert min(seen[task.id] for task in tasks) > 0
    assert curriculum.figures()["curriculum/in_band"] == pytest.approx(1 / 3)
    assert curriculum.figures()["curriculum/solve_rate"] == pytest.approx(0.5)


def test_a_task_that_becomes_solvable_is_drawn_again() -> None:
    [task] = tasks = some(1)
    curriculum = Curriculum(tasks, CurriculumSettings(band=(0.2, 0.8), keep=0.5))
    shares = []
    for rate in (0.0, 0.0, 0.5, 0.5):
        curriculum.settled(next(curriculum), solving(task, rate))
        shares.append(curriculum.share(task))
    assert shares[:2] == [0.1, 0.1]
    assert shares[2] == shares[3] == 1.0
    assert curriculum.solve_rate(task) == pytest.approx(0.5 * (1 + 0.5) / (1 + 0.5 + 0.25 + 0.125))


def test_without_a_band_solve_rates_draw_nothing() -> None:
    plain, rated = Curriculum(some(9)), Curriculum(some(9))
    for _ in range(30):
        task = next(rated)
        assert next(plain).id == task.id
        rated.settled(task, solving(task, 0.0))


# --- stages


RISING = (Stage(0, 1), Stage(None, 2, above=0.7), Stage(None, None, above=0.7))


def test_a_stage_rises_when_the_present_hops_are_solved() -> None:
    tasks = some(9, hops=3)
    curriculum = Curriculum(tasks, CurriculumSettings(stages=RISING, keep=0.0))
    rates = dict.fromkeys((1, 2, 3), 0.5)
    for _ in range(30):
        task = next(curriculum)
        assert task.hops == 1, "half of the time is not enough"
        curriculum.settled(task, solving(task, rates[task.hops]))
    rates[1] = 0.8
    seen = []
    for _ in range(40):
        task = next(curriculum)
        seen.append(task.hops)
        curriculum.settled(task, solving(task, rates[task.hops]))
    assert 2 in seen
    assert 3 not in seen, "two hops are solved half of the time"
    assert curriculum.hops == 2
    for task in tasks:
        if task.hops == 2:
            curriculum.settled(task, solving(task, 1.0))
    assert curriculum.hops is None
    for task in tasks:
        curriculum.settled(task, solving(task, 0.0))
    next(curriculum)
    assert curriculum.hops is None or curriculum.hops >= 2
    assert {task.hops for task in islice(curriculum, 20)} == {1, 2, 3}, "a stage is not gone back"


def test_a_stage_waits_until_enough_tasks_were_tried() -> None:
    tasks = some(12, hops=2)
    settings = CurriculumSettings(stages=(Stage(0, 1), Stage(None, None, above=0.5)), rise_tasks=4)
    curriculum = Curriculum(tasks, settings)
    for number in range(4):
        assert curriculum.hops == 1, f"{number} of 4 tasks were tried"
        task = next(curriculum)
        curriculum.settled(task, solving(task, 1.0))
    assert curriculum.hops is None


def test_a_fixed_start_and_a_solve_rate_whichever_comes_first() -> None:
    stages = (Stage(0, 1), Stage(5, None, above=0.5))
    never = Curriculum(some(12, hops=2), CurriculumSettings(stages=stages))
    assert [task.hops for task in islice(never, 5)] == [1] * 5
    assert never.hops is None, "none was ever solved, and group 5 has come"
    early = Curriculum(some(2, hops=2), CurriculumSettings(stages=stages))
    task = next(early)
    early.settled(task, solving(task, 1.0))
    assert early.hops is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stages": (Stage(0, 1), Stage(None, 2))}, "needs start or above"),
        ({"stages": (Stage(None, 1, above=0.5),)}, "begin at 0"),
        ({"stages": (Stage(0, 1), Stage(None, 2, above=1.0))}, "above"),
        ({"stages": (Stage(0, 1), Stage(9, 2), Stage(None, 3, above=0.5), Stage(4, None))}, "rise"),
        ({"band": (0.8, 0.2)}, "band"),
        ({"band": (-0.1, 0.2)}, "band"),
        ({"keep": 1.0}, "keep"),
        ({"rise_tasks": 0}, "rise_tasks"),
    ],
)
def test_settings_of_rates_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CurriculumError, match=message):
        CurriculumSettings(**fields)


# --- going on


@given(
    st.integers(1, 9),
    st.integers(0, 40),
    st.integers(0, 2**32).map(random.Random),
    st.sampled_from([None, (0.2, 0.8)]),
)
def test_a_run_that_goes_on_draws_the_same(count: int, at: int, dice: random.Random, band: Any) -> None:
    """Saved anywhere and loaded elsewhere, with the same outcomes it gives out the same tasks, stages included."""
    settings = CurriculumSettings(seed=3, stages=RISING, band=band, constant_share=0.7, rise_tasks=2)
    first = Curriculum(some(count, hops=3), settings)
    under_way: list[Task] = []
    for task in islice(first, at):
        under_way.append(task)
        if dice.random() < 0.7:
            done = under_way.pop(dice.randrange(len(under_way)))
            first.settled(done, solving(done, dice.choice((0.0, 0.4, 1.0))) if dice.random() < 0.9 else None)
    second = Curriculum(some(count, hops=3), settings)
    second.load_state(json.loads(json.dumps(first.state_dict())))
    again = list(islice(second, len(under_way)))
    assert sorted(task.id for task in again) == sorted(task.id for task in under_way)
    assert [first.share(task) for task in some(count, hops=3)] == [second.share(task) for task in some(count, hops=3)]
    for _ in range(20):
        one, other = next(first), next(second)
        assert one == other
        assert first.hops == second.hops
        outcome = solving(one, dice.choice((0.0, 0.4, 1.0)))
        for each in (first, second):
            each.settled(one, outcome)


def test_a_state_of_before_there_were_rates_is_taken_up() -> None:
    state = Curriculum(some(3)).state_dict()
    del state["rates"], state["stage"]
    curriculum = Curriculum(some(3), CurriculumSettings(band=(0.2, 0.8)))
    curriculum.load_state(state)
    take: Callable[[], Task] = lambda: next(curriculum)  # noqa: E731
    assert {take().id for _ in range(3)} == {"t0", "t1", "t2"}
