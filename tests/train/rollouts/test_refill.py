"""Further groups in place of constant ones: how many, in which order, within the bound, and that nothing is hidden."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_support import PLAIN
from rollout_support import ANY, PATIENCE_S, Conductor, act, by_turns, facts, tasks

from thresher.corpus.collection import Collection
from thresher.engine.policy import Decision, View
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.monitoring.alarms import Monitor
from thresher.train.monitoring.log import StepLog
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import PROFILES
from thresher.train.rewards.reward import Reward, reward_of
from thresher.train.rollouts.curriculum import Curriculum
from thresher.train.rollouts.refill import refilled
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.settings import RollSettings
from thresher.train.segments.segment import Segment
from thresher.train.tasks.task import Task
from thresher.train.trainer.rows import rows_of
from thresher.train.trainer.source import Background, RollerSource

TASK = Task("t", "?")


def group(number: int, *rewards: float) -> Group:
    return Group(
        number,
        TASK,
        tuple(Rollout(TASK, number, n, None, PLAIN, Reward(own, {}, {})) for n, own in enumerate(rewards)),
    )


class Giving:
    """Hands over groups of which each has spread or none, until they end."""

    def __init__(self, spread: list[bool]) -> None:
        self.groups = [group(number, 0.0, float(own)) for number, own in enumerate(spread)]
        self.asked: list[int] = []

    async def __call__(self, count: int) -> list[Group]:
        self.asked.append(count)
        given, self.groups = self.groups[:count], self.groups[count:]
        return given


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 8), st.floats(0, 3))
def test_a_step_is_filled_up_to_its_bound(spread: list[bool], count: int, refill: float) -> None:
    giving = Giving(spread)
    groups = asyncio.run(refilled(giving, count, refill))
    assert [each.number for each in groups] == list(range(len(groups))), "none is left out, none is put elsewhere"
    assert len(groups) <= count + int(refill * count + 1e-9)
    good = sum(not each.constant for each in groups)
    assert good <= count, "a step does not grow"
    all_asked = len(groups) >= count + int(refill * count + 1e-9)
    assert good == count or all_asked or not giving.groups, "it gave up early"
    if refill == 0:
        assert giving.asked == [count]


def test_a_factor_counts_in_tenths_too() -> None:
    """0.1 × 30 is 3, though not in binary."""
    giving = Giving([False] * 99)
    assert len(asyncio.run(refilled(giving, 30, 0.1))) == 33
    assert giving.asked == [30, 3]


# --- over the real roller


def turns_by_seed(question: str, seed: int) -> int:
    return random.Random(f"{question}/{seed}").randint(1, 2)


def odd_tasks_alike(
    task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
) -> tuple[Facts, Reward]:
    """Odd tasks have groups without spread."""
    odd = int(task.id.partition("-")[2]) % 2
    seed = sum(map(ord, str(result.trajectory and result.trajectory.id)))
    return facts(result), Reward(0.0 if odd else float(seed), {}, {})


class Quick:
    """Finishes at once, or in its second turn."""

    name = "quick"

    async def decide(self, view: View) -> Decision:
        await asyncio.sleep(0)
        return act(view, 1 + len(view.question) % 2)


@settings(max_examples=20, deadline=None)
@given(
    size=st.integers(1, 3),
    step=st.integers(1, 4),
    concurrency=st.integers(1, 6),
    staleness=st.integers(0, 2),
    refill=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
    count=st.integers(1, 14),
)
def test_the_bound_and_the_numbers_hold_with_refills(
    ferries: Collection, size: int, step: int, concurrency: int, staleness: int, refill: float, count: int
) -> None:
    own = RollSettings(group_size=size, groups_per_step=step, concurrency=concurrency, max_staleness=staleness)

    async def run() -> list[list[Group]]:
        engine = SearchEngine(ferries, lambda _: Quick())
        steps = []
        async with (
            asyncio.timeout(PATIENCE_S),
            Roller(engine, ANY, odd_tasks_alike, iter(tasks(count)), own) as roller,
        ):
            version = 0
            while groups := await refilled(roller.groups, step, refill):
                for each in groups:
                    for rollout in each.scored:
                        assert version - staleness <= min(rollout.versions) <= version
                steps.append(groups)
                version += 1
                roller.published(version)
            assert roller.stats.stale == roller.stats.dropped == 0, "nothing was run in vain"
        return steps

    steps = asyncio.run(run())
    numbers = [each.number for groups in steps for each in groups]
    assert sorted(numbers) == list(range(count)), "each task once, whatever was refilled"
    assert all(sum(not each.constant for each in groups) <= step for groups in steps)


class Alone:
    def sampling(self) -> None:
        pass

    def training(self) -> None:
        pass


def source_over(collection: Collection, own: list[Task], refill: float) -> RollerSource:
    engine = SearchEngine(collection, lambda _: Quick())
    rolling = RollSettings(group_size=2, groups_per_step=2, concurrency=2, max_staleness=0)

    @asynccontextmanager
    async def opened(given: Iterator[Task], *, first: int, version: int) -> AsyncIterator[Roller]:
        async with Roller(engine, ANY, odd_tasks_alike, given, rolling, first=first, version=version) as roller:
            yield roller

    return RollerSource(Background(), opened, Curriculum(own), Alone(), refill=refill)


def test_a_run_with_refills_goes_on_behind_what_was_handed_over(ferries: Collection) -> None:
    """Numbers are not used twice and no task is lost, whatever a step took besides."""
    one, other = (source_over(ferries, tasks(12), refill=1.0) for _ in range(2))
    try:
        handed = one.next_groups(2)
        assert one.refilled == len(handed) - 2
        assert one.refilled > 0 or not any(each.constant for each in handed)
        one.published(1)
        handed += one.next_groups(2)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        other.published(2)
        for version in range(3, 20):
            if len({each.task.id for each in handed}) == 12:
                break
            handed += other.next_groups(2)
            other.published(version)
        numbers = [each.number for each in handed]
        assert len(set(numbers)) == len(numbers)
        assert len({each.task.id for each in handed[:12]}) == 12, "an epoch holds every task once"
    finally:
        one.close()
        other.close()


# --- nothing is hidden


def scored(number: int, *each: Facts) -> Group:
    profile = PROFILES["context1"]
    return Group(
        number,
        TASK,
        tuple(Rollout(TASK, number, n, None, own, reward_of(own, profile)) for n, own in enumerate(each)),
    )


GARBAGE = replace(
    PLAIN,
    returned=(),
    shown=frozenset(),
    answer_returned=False,
    answer_shown=False,
    finished=False,
    sufficient=None,
    stop_reason="no_new_evidence",
    searches=0,
    calls=16,
    malformed=16,
)


def segments_of(rollout: Rollout) -> list[Segment]:
    return [Segment((1, 2), (False, True), (0.0, -0.5), (1,), ("w0",))]


def test_groups_of_garbage_count_in_the_means_and_raise_the_alarm() -> None:
    """A policy that makes its bad groups alike has them refilled, and is seen all the same."""
    giving = Giving([])
    giving.groups = [
        scored(number, *([GARBAGE] * 4 if number % 2 else [PLAIN, PLAIN, PLAIN, GARBAGE])) for number in range(4_000)
    ]
    steps = [asyncio.run(refilled(giving, 4, 1.0)) for _ in range(40)]
    assert all(sum(each.constant for each in groups) >= 3 for groups in steps)
    monitor, of_trained = Monitor(), Monitor()
    for number, groups in enumerate(steps):
        log = StepLog.of(groups, step=number, refilled=len(groups) - 4)
        assert log.reward is not None
        assert log.facts is not None
        assert log.reward.mean == pytest.approx(
            sum(r.reward.total for each in groups for r in each.scored if r.reward) / (4 * len(groups))
        )
        assert log.reward.mean < 1.0, "not that of the trained groups, which is above 1.2"
        assert log.facts.no_valid_call > 0.5
        assert log.groups == len(groups)
        assert log.constant_groups == log.refilled + 4 - sum(not each.constant for each in groups)
        monitor.update(log)
        of_trained.update(StepLog.of([each for each in groups if not each.constant], step=number))
    assert "malformed_rate" in {alarm.name for alarm in monitor.alarms}
    assert "malformed_rate" not in {alarm.name for alarm in of_trained.alarms}, "a log of what is left would hide it"


@given(
    st.lists(st.lists(st.sampled_from([0.0, 1.0, -0.7]), min_size=2, max_size=4), min_size=1, max_size=12),
    st.integers(1, 4),
)
def test_a_group_with_any_spread_is_trained_garbage_included(rewards: list[list[float]], count: int) -> None:
    giving = Giving([])
    giving.groups = [group(number, *own) for number, own in enumerate(rewards)]
    groups = asyncio.run(refilled(giving, count, 2.0))
    plan = rows_of(groups, segments_of)
    spread = [each for each in groups if len({r.reward.total for r in each.scored if r.reward}) > 1]
    assert len(plan.rows) == sum(len(each.rollouts) for each in spread)
    assert plan.constant == len(groups) - len(spread)
    assert plan.groups == len(groups)


async def test_while_a_step_is_refilled_searches_of_the_next_go_on(ferries: Collection) -> None:
    """What is ready for the next step is taken first: no search is begun that could have been spared."""
    conductor = Conductor(turns=turns_by_seed)
    own = RollSettings(group_size=1, groups_per_step=1, concurrency=2, max_staleness=1)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(ferries, conductor), ANY, by_turns, iter(tasks(9)), own) as roller,
    ):
        asking = asyncio.create_task(refilled(roller.groups, 1, 1.0))
        for number in (0, 1):
            await conductor.finish(number)
        # Groups of one are constant: each step takes one more.
        assert [each.number for each in await asking] == [0, 1]
        assert roller.stats.started == 2
