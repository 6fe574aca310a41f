"""What it means that a search solved its task, and how much of the time searches of a task do."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.train.rewards.facts import Facts
from thresher.train.rollouts.rollout import Group, Rollout


def is_complete(facts: Facts, max_results: int) -> bool:
    """Whether a search found all there was: its gold, else an answer, else that there is nothing to be found.

    A search that may return fewer documents than are gold is complete when its list is full of gold.
    """
    if facts.gold:
        return len(facts.gold.intersection(facts.returned)) >= min(len(facts.gold), max_results)
    if facts.has_answers:
        return facts.answer_returned
    return facts.sufficient is False


def is_solved(rollout: Rollout, *, max_results: int, reward: float | None = None) -> bool:
    """Whether a scored rollout solved its task.

    By its facts: all the evidence was returned (`is_complete`), and where there is nothing to be found it also searched
    at least once before it said so. With `reward`: what it earned is at least that, whatever the facts say; for scorers
    whose rewards are about something else.
    """
    if reward is not None:
        return rollout.reward is not None and rollout.reward.total >= reward
    facts = rollout.facts
    return facts is not None and is_complete(facts, max_results) and (facts.searches > 0 or bool(facts.gold))


@dataclass(frozen=True, slots=True)
class SolveRate:
    """Share of the rollouts of a task that solved it; those of earlier groups count less and less.

    Attributes:
        solved, seen: rollouts, each weighed by how long ago its group was.
    """

    solved: float = 0.0
    seen: float = 0.0

    @property
    def value(self) -> float | None:
        """In [0, 1]; None before the first rollout."""
        return self.solved / self.seen if self.seen > 0 else None

    def after(self, group: Group, *, keep: float, max_results: int, reward: float | None = None) -> SolveRate:
        """With one more group, where what was before counts `keep` times as much. Faults count for nothing."""
        if not group.scored:
            return self
        solved = sum(is_solved(rollout, max_results=max_results, reward=reward) for rollout in group.scored)
        return SolveRate(keep * self.solved + solved, keep * self.seen + len(group.scored))


def closeness(rate: float, band: tuple[float, float]) -> float:
    """How near a solve rate is to a band, in [0, 1]: 1 inside it, and 0 where always or never is outside of it."""
    low, high = band
    if rate < low:
        return rate / low
    return (1 - rate) / (1 - high) if rate > high else 1.0
