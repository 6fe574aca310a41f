"""What two releases do with the questions of a suite: searched in turns, on the same collection, scored alike."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from thresher.engine.requests import SearchRequest
from thresher.train.loop.gate import Measure, Pair
from thresher.train.loop.releases import Release
from thresher.train.metrics.retrieval import recall_at
from thresher.train.rewards.scorer import Scorer
from thresher.train.rollouts.faults import fault_of_error
from thresher.train.tasks.task import Task

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.engine.search import SearchEngine
    from thresher.train.rewards.facts import Facts

REWARDS = (-1.0, 2.0)
"""What a reward is cut to before it is a score."""

OpenEngine = Callable[[Release, "Collection"], AbstractAsyncContextManager["SearchEngine"]]
"""Opens an engine whose turns a release decides, for as long as the block lasts."""


def measured(
    collection: Collection,
    live: Release,
    candidate: Release,
    open_engine: OpenEngine,
    tasks: Sequence[Task],
    request: SearchRequest,
    scorer: Scorer,
    *,
    metric: Literal["reward", "recall", "answer"],
    seed: int = 0,
) -> Iterator[Pair]:
    """Pairs one after the other, as they are asked for: whoever has seen enough stops asking.

    Questions come in an order that `seed` draws. Which of both searches first changes from one to the next: the first
    to ask embeds for both. Tasks that the metric says nothing of are left out.
    """
    order = [task for task in tasks if _fits(task, metric)]
    random.Random(seed).shuffle(order)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            engines = [
                runner.run(stack.enter_async_context(open_engine(release, collection))) for release in (live, candidate)
            ]
            if order:  # what is loaded once is loaded before anything is timed
                for engine in engines:
                    runner.run(_measure(engine, order[0], request, scorer, metric))
            for number, task in enumerate(order):
                found: dict[int, Measure] = {}
                for place in (0, 1) if number % 2 else (1, 0):
                    found[place] = runner.run(_measure(engines[place], task, request, scorer, metric))
                yield Pair(task.question, found[0], found[1])
        finally:
            runner.run(stack.aclose())


def _fits(task: Task, metric: str) -> bool:
    return bool(task.gold_ids) if metric == "recall" else bool(task.answers) if metric == "answer" else True


async def _measure(engine: SearchEngine, task: Task, request: SearchRequest, scorer: Scorer, metric: str) -> Measure:
    asked = replace(request, query=task.question)
    started = time.perf_counter()
    try:
        result = await engine.search(asked)
    except Exception as error:  # a policy that cannot search this question has failed it
        seconds = time.perf_counter() - started
        fault = fault_of_error(error)
        return Measure(
            score=0.0,
            seconds=seconds,
            tokens=0,
            well_formed=False,
            failed=True,
            abstained=True,
            fault=None if fault is None else fault.text,
        )
    seconds = time.perf_counter() - started
    facts, reward = scorer(task, asked, result)
    usage = result.usage
    return Measure(
        score=_score(metric, facts, reward.total, task),
        seconds=seconds,
        tokens=usage.prompt_tokens + usage.completion_tokens,
        well_formed=not facts.malformed,
        failed=result.status == "failed" and facts.fault is None,
        abstained=not result.results or result.sufficient is False,
        fault=facts.fault,
    )


def _score(metric: str, facts: Facts, reward: float, task: Task) -> float:
    if metric == "recall":
        return recall_at(facts.returned, task.gold_ids, 10)
    if metric == "answer":
        return float(facts.answer_returned)
    low, high = REWARDS
    return (min(high, max(low, reward)) - low) / (high - low)
