"""What a search would have earned with another ending: the reward of any list of its passages, without searching again.

The list and the word on it are a policy's last choices, so one search gives as many samples of them as one likes, all
from the same state (the "vine" of TRPO, Schulman et al. 2015). Their common mean is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from thresher.train.builtin.gathering import Episode
from thresher.train.metrics.answers import answer_in_text
from thresher.train.metrics.retrieval import distinct
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import reward_of
from thresher.train.rewards.scorer import Scorer


class Endings:
    """The endings of one search, by the rows of its passages."""

    def __init__(self, episode: Episode, scorer: Scorer, names: Sequence[str]) -> None:
        assert episode.rollout.facts is not None
        self._episode = episode
        self._scorer = scorer
        self._names = names
        self._facts = episode.rollout.facts

    @cached_property
    def _answers(self) -> list[bool]:
        """For each passage, whether an answer stands in it."""
        assert self._episode.result.trajectory is not None
        answers = self._episode.rollout.task.to_be_found
        return [answer_in_text(answers, [item.text]) for item in self._episode.result.trajectory.evidence]

    def facts(self, rows: Sequence[int], sufficient: bool | None) -> Facts:
        """Facts of the search with another ending."""
        facts = self._facts
        returned = tuple(distinct(self._names[row] for row in rows))
        place = None
        if facts.findable:
            first = next((row for row in rows if self._answers[row]), None)
            place = None if first is None else returned.index(self._names[first]) + 1
            found = place is not None
        else:
            found = facts.has_answers and bool(facts.gold) and facts.gold <= set(returned)
        return replace(facts, returned=returned, sufficient=sufficient, answer_returned=found, answer_place=place)

    def reward(self, rows: Sequence[int], sufficient: bool | None, *, progress: float = 1.0) -> float:
        """What the search would have earned."""
        return reward_of(self.facts(rows, sufficient), self._scorer.profile, progress=progress).total
