"""What training knows of one search, and of the searches that share a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thresher.engine.requests import SearchResult
from thresher.engine.trajectory import Trajectory
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Rollout:
    """One search for a task, scored.

    Attributes:
        group: number of the group within the run; `sample`: its place in the group, from 0.
        result: what the engine returned; None where an infrastructure fault outlived its retries.
        facts, reward: None exactly where `result` is.
        versions: the version of the weights behind each turn, sub-agents left out: that which the sampler stamped on
            it, else the one that was published when the turn began. Its least is what staleness goes by.
        attempts: how often the search was run, 1 if no infrastructure fault hit it.
        fault: why there is no result. Such a rollout is in no baseline and trains nothing; no end that the policy
            itself caused is ever a fault.
        budget: name of the budget that it had (`thresher.train.rollouts.budgets`); "" where none are toggled.
    """

    task: Task
    group: int
    sample: int
    result: SearchResult | None
    facts: Facts | None
    reward: Reward | None
    versions: tuple[int, ...] = ()
    seconds: float = 0.0
    attempts: int = 1
    fault: str | None = None
    budget: str = ""

    @property
    def trajectory(self) -> Trajectory | None:
        """The search turn by turn."""
        return None if self.result is None else self.result.trajectory


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task that share a baseline."""

    number: int
    task: Task
    rollouts: tuple[Rollout, ...]

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """Those that a fault did not take away."""
        return tuple(rollout for rollout in self.rollouts if rollout.reward is not None)

    @property
    def constant(self) -> bool:
        """Whether all earned the same, so that there is nothing to learn from it."""
        return len({rollout.reward.total for rollout in self.scored if rollout.reward is not None}) < 2

    @property
    def budget(self) -> str:
        """Name of the budget that all of them had; "" where none are toggled."""
        return self.rollouts[0].budget if self.rollouts else ""


def advantages(rewards: Sequence[float]) -> list[float]:
    """Reward minus the group's mean: no division by the deviation, which would blow up groups that hardly differ.

    As in Dr. GRPO (Liu et al., 2025).
    """
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return [reward - mean for reward in rewards]
