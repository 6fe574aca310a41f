"""Rewards with a judge in them: what rules can check is scored as ever, and a judge's score is one fact more.

A search that breaks rules, returned nothing, or says itself that its evidence does not suffice is not judged at all
(`thresher.train.rewards.terms.judgeable`): the judge can add nothing to it, so nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from thresher.engine.requests import SearchRequest, SearchResult
from thresher.train.judges.errors import JudgeError
from thresher.train.judges.judging import Judge, Judgement
from thresher.train.judges.material import material_of
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward, reward_of
from thresher.train.rewards.scorer import Scorer
from thresher.train.rewards.terms import judgeable
from thresher.train.rollouts.scoring import Scores
from thresher.train.tasks.task import Task

OnJudged = Callable[[Task, SearchResult, Judgement], None]


class JudgedScorer:
    """Scores searches under a profile that pays a judge, too; `judging` has to come first (`scoring.Judging`).

    Safe to share: it keeps nothing of searches. The judge's own cache does.

    Args:
        on_judged: told of every judgement.
    """

    def __init__(self, scorer: Scorer, judge: Judge, *, on_judged: OnJudged | None = None) -> None:
        self.scorer = scorer
        self.judge = judge
        self._on_judged = on_judged

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        """Never: a search that was not judged has no score here.

        Raises:
            JudgeError: always.
        """
        raise JudgeError(f"the search for task {task.id!r} is scored before it was judged: await `judging` first")

    async def judging(self, task: Task, request: SearchRequest, results: Sequence[SearchResult]) -> Scores:
        """What scores these searches of one task, once they have been judged together.

        Raises:
            JudgeUnavailable: the judge cannot be asked.
        """
        facts = [self.scorer.facts(task, request, result) for result in results]
        places = [place for place, own in enumerate(facts) if judgeable(own)]
        self.judge.stats.barred += len(facts) - len(places)
        materials = [material_of(results[place]) for place in places]
        judgements = await self.judge.judge(materials, reference=self._reference([facts[place] for place in places]))
        for place, judgement in zip(places, judgements, strict=True):
            facts[place] = replace(facts[place], judge=judgement.score)
            if self._on_judged is not None:
                self._on_judged(task, results[place], judgement)
        return _Judged(self.scorer, {id(result): own for result, own in zip(results, facts, strict=True)}, results)

    async def check(self) -> None:
        """Make sure that the judge answers.

        Raises:
            JudgeUnavailable: it does not.
        """
        await self.judge.check()

    async def aclose(self) -> None:
        """Close the judge."""
        await self.judge.aclose()

    def _reference(self, facts: Sequence[Facts]) -> int:
        """The place of the search in the middle by what rules say: neither the best nor the worst of the group."""
        totals = [reward_of(own, self.scorer.profile).total for own in facts]
        order = sorted(range(len(totals)), key=lambda place: (totals[place], place))
        return order[len(order) // 2] if order else 0


class _Judged:
    """Scores the searches that were judged, and no others."""

    def __init__(self, scorer: Scorer, facts: Mapping[int, Facts], results: Sequence[SearchResult]) -> None:
        self._scorer = scorer
        self._facts = facts
        self._results = tuple(results)  # held, so that no other object can have the identity of one

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        facts = self._facts.get(id(result))
        if facts is None:
            raise JudgeError(f"a search for task {task.id!r} was not judged with the others of its group")
        return facts, reward_of(facts, self._scorer.profile, progress=progress)
