"""Whether rewards tell rollouts apart: a policy searches each task several times, and its rewards are compared.

Group baselines learn from differences within a task alone. A task that every rollout solves, or none, teaches nothing.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.engine.requests import StopReason
from thresher.train.metrics.retrieval import mean
from thresher.train.rewards.facts import Facts
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.single import roll_groups
from thresher.train.rollouts.solving import is_complete
from thresher.train.tasks.task import Task

if TYPE_CHECKING:
    from thresher.engine.requests import SearchRequest
    from thresher.engine.search import SearchEngine
    from thresher.train.rollouts.scoring import Scores


@dataclass(frozen=True, slots=True)
class HopsFacts:
    """The same for the tasks of one number of hops: how many, mean reward, share of rollouts that found all."""

    tasks: int
    reward: float | None
    complete: float | None


@dataclass(frozen=True, slots=True)
class SpreadFacts:
    """What rollouts of a sample of tasks showed. Shares are of groups that could be scored; None without any.

    Attributes:
        faults: rollouts that could not be run; `failed`: those that ended because the policy raised.
        reward: mean; `deviation`: mean over groups of the standard deviation inside the group.
        constant: groups whose rollouts all earned the same.
        solved_by_all: groups in which every rollout found everything; `solved_by_none`: in which none found anything.
        malformed: mean over rollouts of calls that could not be run as written.
    """

    groups: tuple[Group, ...]
    faults: int
    first_fault: str | None
    failed: int
    first_failure: str | None
    reward: float | None
    deviation: float | None
    constant: float | None
    solved_by_all: float | None
    solved_by_none: float | None
    malformed: float | None
    by_hops: dict[int, HopsFacts]

    @property
    def rollouts(self) -> int:
        """Searches that were scored."""
        return sum(len(group.scored) for group in self.groups)


def sample_tasks(tasks: Sequence[Task], count: int, seed: int = 0) -> list[Task]:
    """At most `count` tasks, drawn by the seed and their ids, whatever their order."""
    drawn = sorted(tasks, key=lambda task: hashlib.sha256(json.dumps([seed, task.id]).encode()).digest())
    return drawn[:count]


async def roll_tasks(
    engine: SearchEngine,
    request: SearchRequest,
    scorer: Scores,
    tasks: Sequence[Task],
    *,
    size: int,
    seed: int = 0,
    concurrency: int = 8,
    on_task: Callable[[int, int, Task], None] | None = None,
) -> SpreadFacts:
    """Search each task `size` times with different seeds, at most `concurrency` searches at once.

    Raises:
        ScoringFailed: the engine or the scorer broke.
    """
    groups = await roll_groups(
        engine, request, scorer, tasks, size=size, seed=seed, concurrency=concurrency, on_task=on_task
    )
    return spread_facts(groups, max_results=request.max_results)


def spread_facts(groups: Sequence[Group], *, max_results: int) -> SpreadFacts:
    """What rewards of groups tell. A search that may return fewer documents than are gold is complete when full."""
    scored = [group for group in groups if len(group.scored) > 1]
    rewards = {group.number: [r.reward.total for r in group.scored if r.reward is not None] for group in scored}
    facts = {group.number: [r.facts for r in group.scored if r.facts is not None] for group in scored}
    hops: dict[int, list[Group]] = defaultdict(list)
    for group in scored:
        hops[group.task.hops].append(group)
    faults = [rollout.fault for group in groups for rollout in group.rollouts if rollout.fault is not None]
    failures = [
        "; ".join(rollout.result.warnings) or "no reason given"
        for group in groups
        for rollout in group.scored
        if rollout.result is not None and rollout.result.stop_reason is StopReason.ERROR
    ]
    return SpreadFacts(
        groups=tuple(groups),
        faults=len(faults),
        first_fault=next(iter(faults), None),
        failed=len(failures),
        first_failure=next(iter(failures), None),
        reward=mean(reward for values in rewards.values() for reward in values),
        deviation=mean(statistics.pstdev(values) for values in rewards.values()),
        constant=mean(group.constant for group in scored),
        solved_by_all=mean(all(is_complete(fact, max_results) for fact in each) for each in facts.values()),
        solved_by_none=mean(not any(map(found_something, each)) for each in facts.values()),
        malformed=mean(fact.malformed for each in facts.values() for fact in each),
        by_hops={
            count: HopsFacts(
                tasks=len(own),
                reward=mean(reward for group in own for reward in rewards[group.number]),
                complete=mean(is_complete(fact, max_results) for group in own for fact in facts[group.number]),
            )
            for count, own in sorted(hops.items())
        },
    )


def found_something(facts: Facts) -> bool:
    """Whether a search found anything of it."""
    if facts.gold:
        return facts.answer_returned or not facts.gold.isdisjoint(facts.returned)
    return is_complete(facts, 1)
