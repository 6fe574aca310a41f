"""The roller over the real engine, turn by turn as each test lets it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from rollout_support import ANY, PATIENCE_S, Conductor, Waiting, act, by_turns, tasks

from thresher.corpus.collection import Collection
from thresher.engine.policy import Decision, Sampled, View
from thresher.engine.requests import StopReason
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.errors import RolloutError, ScoringFailed, WeightsNotServed
from thresher.train.rollouts.roller import STALE_RUNS, Roller
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task


@asynccontextmanager
async def rolling(
    collection: Collection,
    conductor: Conductor,
    own: list[Task] | Iterator[Task],
    scorer: Any = by_turns,
    **fields: Any,
) -> AsyncIterator[Roller]:
    sizes = {name: fields.pop(name) for name in list(fields) if name in RollSettings.__dataclass_fields__}
    settings = RollSettings(**{"group_size": 2, "groups_per_step": 1, "concurrency": 4, "max_staleness": 1} | sizes)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(collection, conductor), ANY, scorer, iter(own), settings, **fields) as roller,
    ):
        yield roller


async def finished(roller: Roller, groups: int) -> None:
    """Wait until so many groups are complete, without taking one."""
    while roller.stats.finished < groups:  # noqa: ASYNC110 - the roller tells only those who take groups
        await asyncio.sleep(0)


async def nothing_left() -> None:
    """No task of the roller, the engine or a policy is left."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, left


async def test_groups_come_as_they_are_complete(ferries: Collection) -> None:
    conductor = Conductor()
    async with rolling(ferries, conductor, tasks(2), groups_per_step=2) as roller:
        await conductor.came(4)
        await conductor.finish(1, samples=2)
        [second] = await roller.groups(1)
        await conductor.finish(0, samples=2)
        [first] = await roller.groups(1)
        assert await roller.groups(3) == []
        assert await roller.groups(1) == [], "and it says so again"
    assert (second.number, first.number) == (1, 0)
    for group in (first, second):
        assert [rollout.sample for rollout in group.rollouts] == [0, 1]
        assert all(rollout.task is group.task and rollout.group == group.number for rollout in group.rollouts)
        assert all(rollout.versions == (0, 0) and rollout.reward.total == 2 for rollout in group.scored)
        assert all(rollout.seconds > 0 and rollout.attempts == 1 for rollout in group.rollouts)
        asked = {seed for question, seed in conductor.seeds if question == group.task.question}
        assert asked == set(group_seeds(0, group.number, 2))


async def test_fewer_groups_than_asked_for_where_the_tasks_end(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(1)) as roller:
        asking = asyncio.create_task(roller.groups(5))
        await conductor.finish(0, samples=2)
        assert [group.number for group in await asking] == [0]


async def test_no_tasks_at_all(ferries: Collection) -> None:
    async with rolling(ferries, Conductor(), []) as roller:
        assert await roller.groups(2) == []


async def test_tasks_are_asked_for_only_when_they_can_start(ferries: Collection) -> None:
    """Two slots, and room for two groups of two: an endless iterator is asked twice, and again when one is taken."""
    given: list[Task] = []

    def endless() -> Iterator[Task]:
        while True:
            given.append(tasks(len(given) + 1)[-1])
            yield given[-1]

    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, endless(), concurrency=8) as roller:
        await conductor.came(4)
        assert len(given) == 2
        for number in (0, 1):
            await conductor.finish(number, samples=2)
        assert [group.number for group in await roller.groups(1)] == [0]
        assert len(given) == 2, "this version has had its group, the next is ready: there is room only after a step"
        roller.published(1)
        await conductor.came(2)
        assert len(given) == 3


async def test_searches_go_on_while_weights_change(ferries: Collection) -> None:
    """A partial rollout: each turn carries its own version."""
    conductor = Conductor(turns=lambda question, seed: 3)
    async with rolling(ferries, conductor, tasks(1), max_staleness=2) as roller:
        first, second = await conductor.came(2)
        conductor.release(first)
        roller.published(1)
        conductor.release(second)
        later = [turn for turn in await conductor.came(2) if turn.turn == 2]
        assert len(later) == 2
        roller.published(2)
        await conductor.finish(0, samples=2)
        [group] = await roller.groups(1)
        assert roller.stats.partial == 2
        assert roller.stats.staleness == {2: 2}
    for rollout in group.rollouts:
        assert rollout.versions[0] == 0
        assert rollout.versions[2] == 2
        assert rollout.result.stop_reason is StopReason.FINISHED


async def test_what_is_too_stale_is_run_again_with_the_same_seed(ferries: Collection) -> None:
    conductor = Conductor()
    async with rolling(ferries, conductor, tasks(1)) as roller:
        await conductor.came(2)
        before = list(conductor.seeds)
        await conductor.finish(0, samples=1)  # the other is in its first turn, or its second
        roller.published(1)
        assert roller.stats.stale == 0, "one version behind is allowed"
        roller.published(2)
        while len(conductor.seeds) < 4:
            conductor.changed.clear()
            await conductor.changed.wait()
        await conductor.finish(0, samples=2)
        [group] = await roller.groups(1)
        stats = roller.stats
    assert [rollout.versions for rollout in group.rollouts] == [(2, 2), (2, 2)]
    assert sorted(conductor.seeds[2:]) == sorted(before)
    assert (stats.stale, stats.searches, stats.handed) == (2, 4, 1)
    assert stats.cancelled >= 1
    assert stats.wasted_seconds > 0


async def test_a_finished_group_that_becomes_too_stale_is_taken_back(ferries: Collection) -> None:
    conductor = Conductor()
    async with rolling(ferries, conductor, tasks(1), max_staleness=0) as roller:
        await conductor.came(2)
        await conductor.finish(0, samples=2)
        await finished(roller, 1)
        roller.published(1)
        await conductor.came(2)
        await conductor.finish(0, samples=2)
        [group] = await roller.groups(1)
    assert {version for rollout in group.rollouts for version in rollout.versions} == {1}


async def test_a_long_group_is_waited_for_and_not_dropped(ferries: Collection) -> None:
    """Three versions pass; task 0 takes longer than all others, and is trained within its bound all the same."""
    conductor = Conductor(turns=lambda question, seed: 2)
    trained: list[int] = []
    async with rolling(ferries, conductor, tasks(4), group_size=1, max_staleness=1, concurrency=2) as roller:
        await conductor.came(2)
        await conductor.finish(1)
        trained += [group.number for group in await roller.groups(1)]
        roller.published(1)
        await conductor.came(2)
        await conductor.finish(2)
        await finished(roller, 2)
        asking = asyncio.create_task(roller.groups(1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done(), "task 2 is ready, but for task 0 this is the last chance"
        await conductor.finish(0)
        trained += [group.number for group in await asking]
        assert roller.stats.waits_for_due == 1
        roller.published(2)
        trained += [group.number for group in await roller.groups(1)]
        await conductor.finish(3)
        roller.published(3)
        trained += [group.number for group in await roller.groups(1)]
        assert roller.stats.stale == 0
    assert trained == [1, 0, 2, 3]


async def test_without_staleness_a_step_begins_when_the_one_before_is_published(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    settings = RollSettings(group_size=1, groups_per_step=2, concurrency=8, max_staleness=0)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(ferries, conductor), ANY, by_turns, iter(tasks(4)), settings) as roller,
    ):
        for version in range(2):
            await conductor.came(2)
            assert {turn.number for turn in conductor.waiting} == {2 * version, 2 * version + 1}
            for number in (0, 1):
                await conductor.finish(2 * version + number)
            groups = await roller.groups(2)
            assert len(groups) == 2
            assert roller.stats.started == 2 * version + 2
            assert all(rollout.versions == (version,) for group in groups for rollout in group.rollouts)
            roller.published(version + 1)


async def test_slots_are_never_exceeded_and_older_groups_go_first(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(3), group_size=3, groups_per_step=3, concurrency=2) as roller:
        order = []
        for _ in range(9):
            waiting = await conductor.came(1)
            order.append(waiting[0].number)
            conductor.release(waiting[0])
        await roller.groups(3)
    assert conductor.most <= 2
    assert order == sorted(order)


async def test_published_from_another_thread(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(1)) as roller:
        thread = threading.Thread(target=roller.published, args=(1,))
        thread.start()
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        assert roller.version == 1
        with pytest.raises(ValueError, match="version 0 was published after version 1"):
            roller.published(0)
        await conductor.finish(0, samples=2)
        assert len(await roller.groups(1)) == 1


async def test_leaving_stops_every_search_and_leaks_nothing(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 3)
    async with rolling(ferries, conductor, tasks(5), groups_per_step=5) as roller:
        await conductor.came(4)
        asking = asyncio.create_task(roller.groups(1))
        await asyncio.sleep(0)
    with pytest.raises(RolloutError, match="closed"):
        await asking
    assert conductor.stopped == 4
    assert roller.stats.cancelled == 4
    await nothing_left()
    with pytest.raises(RolloutError, match="closed"):
        await roller.groups(1)


async def test_an_interrupt_stops_every_search_too(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 3)

    async def training() -> None:
        async with rolling(ferries, conductor, tasks(5), groups_per_step=5) as roller:
            await roller.groups(5)

    run = asyncio.create_task(training())
    await conductor.came(4)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert conductor.stopped == 4
    await nothing_left()


async def test_a_group_can_be_cancelled(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(3), max_staleness=0, groups_per_step=2) as roller:
        await conductor.came(4)
        assert roller.cancel(0)
        assert not roller.cancel(0)
        assert not roller.cancel(99)
        await conductor.came(4)
        for number in (1, 2):
            await conductor.finish(number, samples=2)
        assert sorted(group.number for group in await roller.groups(2)) == [1, 2]
        assert roller.stats.cancelled == 2


async def test_a_caller_that_is_cancelled_takes_no_group_along(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(2), groups_per_step=2) as roller:
        asking = asyncio.create_task(roller.groups(2))
        await conductor.came(4)
        await conductor.finish(0, samples=2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await conductor.finish(1, samples=2)
        assert [group.number for group in await roller.groups(2)] == [0, 1]


async def test_the_groups_of_two_callers_are_different(ferries: Collection) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(2), groups_per_step=2) as roller:
        asking = [asyncio.create_task(roller.groups(1)) for _ in range(2)]
        for number in (1, 0):
            await conductor.finish(number, samples=2)
        assert sorted(group.number for [group] in await asyncio.gather(*asking)) == [0, 1]


async def test_a_scorer_that_breaks_ends_the_run_with_the_tasks_name(ferries: Collection) -> None:
    def broken(task: Task, *rest: Any, **more: Any) -> Any:
        raise ZeroDivisionError("no gold")

    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(3), scorer=broken, groups_per_step=3) as roller:
        await conductor.came(4)
        await conductor.finish(1, samples=2)
        for _ in range(2):
            with pytest.raises(ScoringFailed, match=r"task 'task-1'.*ZeroDivisionError: no gold") as caught:
                await roller.groups(1)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert conductor.stopped == 2, "what still ran was stopped"
    await nothing_left()


async def test_an_engine_that_breaks_ends_the_run_with_the_tasks_name(ferries: Collection) -> None:
    def factory(_: Collection) -> Any:
        raise LookupError("no such adapter")

    async with rolling(ferries, factory, tasks(1)) as roller:  # type: ignore[arg-type]
        with pytest.raises(ScoringFailed, match=r"task 'task-0'.*LookupError: no such adapter"):
            await roller.groups(1)


async def test_a_search_that_cancels_itself_ends_the_run_and_does_not_hang_it(ferries: Collection) -> None:
    def factory(_: Collection) -> Any:
        raise asyncio.CancelledError("a pool was closed")

    async with rolling(ferries, factory, tasks(1)) as roller:  # type: ignore[arg-type]
        with pytest.raises(ScoringFailed, match=r"task 'task-0'.*cancelled from within"):
            await roller.groups(1)


async def test_tasks_that_break_end_the_run(ferries: Collection) -> None:
    def broken() -> Iterator[Task]:
        yield tasks(1)[0]
        raise OSError("the disk is gone")

    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, broken(), concurrency=8) as roller:
        with pytest.raises(RolloutError, match="the tasks broke: OSError: the disk is gone"):
            await roller.groups(1)


async def test_a_sampler_that_never_gets_new_weights_is_found_out(ferries: Collection) -> None:
    """Stamps say version 0 for ever, whatever is published."""

    def stamped(view: View, turn: Waiting) -> Decision:
        return replace(act(view, 1), sampled=Sampled((1,), (2,), (0.0,), "model", "w0"))

    conductor = Conductor(turns=lambda question, seed: 1, decide=stamped)
    async with rolling(ferries, conductor, tasks(1), group_size=1, max_staleness=0, version=3) as roller:
        for _ in range(STALE_RUNS + 1):
            await conductor.finish(0)
        with pytest.raises(WeightsNotServed, match=r"weights of version 0, while version 3 is published"):
            await roller.groups(1)


async def test_a_reward_that_changes_with_progress_is_the_same_for_a_whole_group(ferries: Collection) -> None:
    asked = iter([0.25, 0.5])
    seen: list[tuple[str, float]] = []

    def scorer(task: Task, request: Any, result: Any, *, progress: float = 1.0) -> Any:
        seen.append((task.id, progress))
        return by_turns(task, request, result)

    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(
        ferries, conductor, tasks(2), scorer=scorer, groups_per_step=2, progress=lambda: next(asked)
    ) as roller:
        for number in (0, 1):
            await conductor.finish(number, samples=2)
        await roller.groups(2)
    assert seen == [("task-0", 0.25)] * 2 + [("task-1", 0.5)] * 2


async def test_it_tells_whoever_gives_out_tasks_and_whoever_records(ferries: Collection) -> None:
    class Feed:
        def __init__(self) -> None:
            self.given = iter(tasks(3))
            self.told: list[tuple[str, Group | None]] = []

        def __iter__(self) -> Feed:
            return self

        def __next__(self) -> Task:
            return next(self.given)

        def settled(self, task: Task, group: Group | None) -> None:
            self.told.append((task.id, group))

    feed, recorded = Feed(), list[Group]()
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, feed, groups_per_step=3, record=recorded.append, first=40) as roller:
        await conductor.came(4)
        roller.cancel(40)
        await conductor.finish(1, samples=2)
        groups = await roller.groups(1)
    assert feed.told == [("task-0", None), ("task-1", groups[0])]
    assert recorded == groups
    assert groups[0].number == 41


async def test_it_must_be_entered_and_asked_for_something(ferries: Collection) -> None:
    roller = Roller(SearchEngine(ferries), ANY, by_turns, iter(tasks(1)))
    with pytest.raises(RolloutError, match="async with"):
        await roller.groups(1)
    with pytest.raises(ValueError, match="at least 1"):
        await roller.groups(0)


@pytest.mark.parametrize(
    "fields",
    [{"group_size": 0}, {"concurrency": 0}, {"attempts": 0}, {"max_staleness": -1}, {"deadline_s": 0.0}],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        RollSettings(**fields)


async def test_stats_are_a_copy_ready_for_json(ferries: Collection) -> None:
    now = [0.0]
    conductor = Conductor(turns=lambda question, seed: 1)
    async with rolling(ferries, conductor, tasks(1), group_size=1, concurrency=4, clock=lambda: now[0]) as roller:
        await conductor.came(1)
        now[0] = 8.0
        stats = roller.stats
        await conductor.finish(0)
        await roller.groups(1)
        now[0] = 16.0
        assert stats.utilisation == pytest.approx(0.25), "one of four slots"
        assert roller.stats.utilisation == pytest.approx(0.125)
        assert (stats.handed, roller.stats.handed) == (0, 1)
        assert json.loads(json.dumps(roller.stats.as_dict()))["staleness"] == {"0": 1}
