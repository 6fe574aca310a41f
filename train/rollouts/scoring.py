"""A group's rollouts out of what its searches found: scored all at once, so that a baseline compares like with like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thresher.engine.requests import SearchRequest, SearchResult
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.errors import InfrastructureDown, ScoringFailed
from thresher.train.rollouts.faults import fault_of_error
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.searching import Found, request_for
from thresher.train.tasks.task import Task


class Scores(Protocol):
    """What scores a search; see `thresher.train.rewards.scorer.Scorer`."""

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        """Its facts, and what they earn at a point of training in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one sample of a group ended, after `attempts` searches. `seconds` is the last one's."""

    found: Found
    seconds: float
    attempts: int


def scored_group(
    number: int,
    task: Task,
    outcomes: Sequence[Outcome],
    *,
    request: SearchRequest,
    scorer: Scores,
    progress: float,
    deadline_s: float | None = None,
    budget: str = "",
) -> Group:
    """The group of these outcomes, in the order of its samples. A fault leaves a rollout without result and reward.

    Raises:
        InfrastructureDown: what the scorer looks things up in is gone, a collection that was closed for one.
        ScoringFailed: the scorer raised anything else; the message names the task.
    """
    rollouts = []
    for sample, outcome in enumerate(outcomes):
        found = outcome.found
        result, fault = (found.result, None) if found.fault is None else (None, found.fault.text)
        facts: Facts | None = None
        reward: Reward | None = None
        if result is not None:
            try:
                facts, reward = scorer(task, request_for(request, task, deadline_s), result, progress=progress)
            except Exception as error:
                if fault_of_error(error) is not None:
                    raise InfrastructureDown(
                        f"task {task.id!r} cannot be scored (group {number}): {type(error).__name__}: {error}. "
                        "Mend that, then go on from the last checkpoint"
                    ) from error
                raise ScoringFailed(
                    f"the scorer broke on task {task.id!r} (group {number}, sample {sample}): "
                    f"{type(error).__name__}: {error}. This is a bug in a reward, or in what it is given; rollouts "
                    "end here, since leaving the search out would train on a biased rest"
                ) from error
        rollouts.append(
            Rollout(
                task=task,
                group=number,
                sample=sample,
                result=result,
                facts=facts,
                reward=reward,
                versions=found.versions,
                seconds=outcome.seconds,
                attempts=outcome.attempts,
                fault=fault,
                budget=budget,
            )
        )
    return Group(number, task, tuple(rollouts))
