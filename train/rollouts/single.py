"""Groups by themselves: for the doctor, the hack suite, judges, supervised fine-tuning, and evaluation of a set."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.errors import ScoringFailed
from thresher.train.rollouts.judging import judged
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.scoring import Outcome, Scores, scored_group
from thresher.train.rollouts.searching import Attempt, search_once
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task


async def roll_group(
    engine: SearchEngine,
    request: SearchRequest,
    scorer: Scores,
    task: Task,
    *,
    size: int,
    number: int = 0,
    seed: int = 0,
    version: int = 0,
    progress: float = 1.0,
    concurrency: int | None = None,
    settings: RollSettings | None = None,
    slots: asyncio.Semaphore | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Group:
    """Run `size` searches of one task and score them.

    Args:
        request: how to search; the task's question takes the place of its query.
        number: of the group; with `seed` it decides what its rollouts try.
        version: of the weights, for policies whose samplers do not say it.
        progress: of training, in [0, 1], for rewards that change with it.
        concurrency: searches of this group at once; None runs all.
        settings: for attempts, back-off and deadline; its sizes, seed and concurrency are not looked at.
        slots: shared by groups that run beside each other, in place of `concurrency`.

    Returns:
        The group. Rollouts that no attempt got past an infrastructure fault are in it without a reward: look at
        `Group.scored`.

    Raises:
        ScoringFailed: the scorer or the engine raised; the message names the task.
    """
    settings = settings or RollSettings()
    slots = slots or asyncio.Semaphore(concurrency or size)
    attempts = [Attempt() for _ in range(size)]

    async def sample(index: int, own_seed: int) -> Outcome:
        dice = random.Random(own_seed)
        for tried in range(1, settings.attempts + 1):
            async with slots:
                started = time.perf_counter()
                found = await search_once(
                    engine,
                    request,
                    task,
                    seed=own_seed,
                    attempt=attempts[index],
                    version=lambda: version,
                    deadline_s=settings.deadline_s,
                )
                outcome = Outcome(found, time.perf_counter() - started, tried)
            if found.fault is None or not found.fault.passing or tried == settings.attempts:
                return outcome
            await sleep(settings.wait_s(tried, dice.random()))
            attempts[index] = Attempt()
        raise AssertionError("there is at least one attempt")

    searches = [asyncio.create_task(sample(*item)) for item in enumerate(group_seeds(seed, number, size))]
    try:
        outcomes = await asyncio.gather(*searches)
    except Exception as error:
        raise ScoringFailed(
            f"the search for task {task.id!r} raised {type(error).__name__}: {error}. This is a bug in the engine, "
            "its policy or its tools"
        ) from error
    finally:
        for attempt, search in zip(attempts, searches, strict=True):
            attempt.cancel.set()  # the engine's own way to stop
            if not attempt.searching:
                search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
    scores, outcomes = await judged(task, outcomes, request=request, scorer=scorer, deadline_s=settings.deadline_s)
    return scored_group(
        number,
        task,
        outcomes,
        request=request,
        scorer=scores,
        progress=progress,
        deadline_s=settings.deadline_s,
    )


async def roll_groups(
    engine: SearchEngine,
    request: SearchRequest,
    scorer: Scores,
    tasks: Sequence[Task],
    *,
    size: int,
    seed: int = 0,
    version: int = 0,
    concurrency: int = 8,
    settings: RollSettings | None = None,
    on_task: Callable[[int, int, Task], None] | None = None,
) -> list[Group]:
    """A group of each task, at most `concurrency` searches at once; in the order of the tasks, which numbers them.

    Args:
        on_task: told of each group that is done: how many are, of how many, and its task.

    Other arguments and errors are those of `roll_group`; the first error ends all.
    """
    slots = asyncio.Semaphore(concurrency)
    done = 0

    async def roll(number: int, task: Task) -> Group:
        nonlocal done
        group = await roll_group(
            engine,
            request,
            scorer,
            task,
            size=size,
            number=number,
            seed=seed,
            version=version,
            settings=settings,
            slots=slots,
        )
        done += 1
        if on_task is not None:
            on_task(done, len(tasks), task)
        return group

    try:
        async with asyncio.TaskGroup() as rolling:
            groups = [rolling.create_task(roll(number, task)) for number, task in enumerate(tasks)]
    except ExceptionGroup as error:
        raise error.exceptions[0] from error.exceptions[0].__cause__
    return [group.result() for group in groups]
