"""A judge that is stopped while it is asked: what it says afterwards counts for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from rollout_support import ANY, PATIENCE_S, Conductor, Waiting, by_turns, tasks

from thresher.corpus.collection import Collection
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.judges.errors import JudgeUnavailable
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task

SETTINGS = RollSettings(group_size=1, groups_per_step=1, concurrency=1, max_staleness=0)


class Stubborn:
    """The first time it is asked it waits until it is cancelled, and goes on all the same: it answers or breaks."""

    def __init__(self, end: Exception | None) -> None:
        self._end = end
        self.asked = 0
        self.waits = asyncio.Event()
        self.ended = asyncio.Event()

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        raise AssertionError("nothing was judged")

    async def judging(self, task: Task, request: SearchRequest, results: Sequence[SearchResult]) -> Scores:
        self.asked += 1
        if self.asked > 1:
            return by_turns
        try:
            self.waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.set()
            if self._end is not None:
                raise self._end from None
        return by_turns


ENDS = [None, JudgeUnavailable("the connection was cut"), LookupError("a bug of a client library")]


@pytest.mark.parametrize("end", ENDS, ids=["answers", "unavailable", "breaks"])
async def test_a_group_that_is_cancelled_while_it_is_judged_stays_gone(
    ferries: Collection, end: Exception | None
) -> None:
    judge, conductor = Stubborn(end), Conductor(turns=lambda question, seed: 1)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(ferries, conductor), ANY, judge, iter(tasks(2)), SETTINGS) as roller,
    ):
        await conductor.finish(0)
        await judge.waits.wait()
        assert roller.cancel(0)
        await judge.ended.wait()
        await conductor.finish(1)
        [group] = await roller.groups(1)
        assert (group.number, group.task.id) == (1, "task-1")
        assert await roller.groups(1) == []
    assert judge.asked == 2
    assert (roller.stats.handed, roller.stats.faults, roller.stats.dropped) == (1, 0, 0)


@pytest.mark.parametrize("end", ENDS, ids=["answers", "unavailable", "breaks"])
async def test_a_search_that_is_run_again_while_it_is_judged_is_judged_again(
    ferries: Collection, end: Exception | None
) -> None:
    judge, conductor = Stubborn(end), Conductor(turns=lambda question, seed: 1)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(ferries, conductor), ANY, judge, iter(tasks(1)), SETTINGS) as roller,
    ):
        await conductor.finish(0)
        await judge.waits.wait()
        roller.published(1)
        await judge.ended.wait()
        await conductor.finish(0)
        [group] = await roller.groups(1)
        assert [rollout.versions for rollout in group.rollouts] == [(1,)]
        assert await roller.groups(1) == []
    assert judge.asked == 2
    assert (roller.stats.stale, roller.stats.finished, roller.stats.handed) == (1, 1, 1)


async def test_a_turn_that_is_stopped_may_be_let_go_on() -> None:
    """The conductor of these tests does not die of it: it did once, and everything waited for it."""
    conductor = Conductor()
    go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turn = Waiting("question 0", 0, 1, go)
    conductor.waiting.append(turn)
    go.cancel()
    conductor.release(turn)
    assert conductor.waiting == []
