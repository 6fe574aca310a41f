"""How rollouts are run."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.train.rollouts.budgets import SearchBudget


@dataclass(frozen=True, slots=True)
class RollSettings:
    """Settings of a `Roller`.

    Attributes:
        group_size: rollouts of one task.
        groups_per_step: groups that training takes for each new version of the weights; what is started ahead of it
            follows from that.
        concurrency: searches at once.
        max_staleness: versions that the oldest turn of a rollout may be behind the weights that it trains; 0 is
            strictly on-policy: the rollouts of a step begin when the step before has changed the weights.
        attempts: how often a search is run, infrastructure faults counted, before it is given up.
        group_attempts: how often a group of which fewer than two rollouts are left is tried, before it is dropped.
        give_up_after: so many groups dropped in a row end the run.
        deadline_s: wall-clock limit of one search; None leaves it to the request. A search that reaches it is scored
            as it is: it is never run again for being long.
        first_wait_s, longest_wait_s: back-off before a second attempt, and what doubling it ends at.
        seed: of the run; what the seeds of all rollouts are made from.
        budgets: what groups search under by turns (`thresher.train.rollouts.budgets`); none: the request's own.
    """

    group_size: int = 8
    groups_per_step: int = 8
    concurrency: int = 16
    max_staleness: int = 2
    attempts: int = 3
    group_attempts: int = 2
    give_up_after: int = 8
    deadline_s: float | None = None
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    seed: int = 0
    budgets: tuple[SearchBudget, ...] = ()

    def __post_init__(self) -> None:
        for name in ("group_size", "groups_per_step", "concurrency", "attempts", "group_attempts", "give_up_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of rollouts must be at least 1, got {getattr(self, name)}")
        for name in ("max_staleness", "first_wait_s", "longest_wait_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} of rollouts must not be negative, got {getattr(self, name)}")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ValueError(f"deadline_s of rollouts must be positive, got {self.deadline_s}")

    @property
    def fewest(self) -> int:
        """Scored rollouts that a group must have: one alone has no baseline."""
        return min(2, self.group_size)

    def wait_s(self, attempt: int, dice: float) -> float:
        """Seconds before attempt `attempt` + 1 (from 1). `dice` in [0, 1] keeps those that failed together apart."""
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(attempt - 1, 60))
        return longest * (0.5 + dice / 2)
