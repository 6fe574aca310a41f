"""A group under way: its samples, where each stands, and how old the oldest turn is."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from thresher.engine.requests import SearchRequest
from thresher.train.rollouts.budgets import budget_of
from thresher.train.rollouts.faults import Fault
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.scoring import Outcome
from thresher.train.rollouts.searching import Attempt
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task


@dataclass(slots=True)
class Sample:
    """One rollout of a group.

    Attributes:
        dice: what its waits are drawn from.
        attempt: its search under way; None while it waits, backs off or has ended.
        outcome: how it ended; None until it has.
        backing_off: waits for its next attempt.
        tried: searches so far, in this try of its group; `stale_runs`: how often it was run again for being stale.
    """

    number: int
    seed: int
    dice: random.Random
    attempt: Attempt | None = None
    outcome: Outcome | None = None
    backing_off: asyncio.Task[None] | None = None
    tried: int = 0
    stale_runs: int = 0

    @property
    def oldest(self) -> int | None:
        """The version of its oldest turn so far. What ended in a fault trains nothing and is never too old."""
        if self.outcome is not None:
            return None if self.fault is not None else min(self.outcome.found.versions, default=None)
        return None if self.attempt is None else self.attempt.oldest

    @property
    def fault(self) -> Fault | None:
        """Why it ended without a result."""
        return None if self.outcome is None else self.outcome.found.fault

    def again(self) -> None:
        """Forget how it ended."""
        self.outcome = None
        self.tried = 0


@dataclass(slots=True)
class Flight:
    """A group from its start until it is handed over.

    Attributes:
        request: how all its samples search; `budget`: what that is called where budgets are toggled.
        tried: how often it was begun, the first time included.
        group: there once it is complete and scored.
        judging: asks a judge about its searches; None before they have ended, and once they are judged.
        gone: it was handed over, cancelled or dropped.
    """

    number: int
    task: Task
    samples: tuple[Sample, ...]
    request: SearchRequest
    budget: str = ""
    tried: int = 1
    group: Group | None = None
    judging: asyncio.Task[None] | None = None
    gone: bool = False

    @classmethod
    def of(cls, number: int, task: Task, request: SearchRequest, settings: RollSettings) -> Flight:
        """A group that is ready to start. Its budget and its seeds depend on its number and the run's seed alone."""
        seeds = group_seeds(settings.seed, number, settings.group_size)
        samples = tuple(Sample(n, own, random.Random(own)) for n, own in enumerate(seeds))
        budget = budget_of(settings.budgets, seed=settings.seed, group=number)
        if budget is None:
            return cls(number, task, samples, request)
        return cls(number, task, samples, budget.applied(request), budget.name)

    def stop_judging(self) -> None:
        """A search of it is run again, or the group is not wanted any more."""
        if self.judging is not None:
            self.judging.cancel()
            self.judging = None

    @property
    def oldest(self) -> int | None:
        """The version of the oldest turn of all its samples; None before the first."""
        return min((oldest for sample in self.samples if (oldest := sample.oldest) is not None), default=None)

    @property
    def outcomes(self) -> list[Outcome]:
        """How its samples ended, in their order, as far as they have."""
        return [sample.outcome for sample in self.samples if sample.outcome is not None]

    @property
    def complete(self) -> bool:
        """Whether every sample has ended."""
        return len(self.outcomes) == len(self.samples)

    @property
    def faulty(self) -> list[Sample]:
        """Samples that ended in a fault."""
        return [sample for sample in self.samples if sample.fault is not None]
