"""Judges: by rubric, each search by itself, and in pairs, the searches of a group against each other.

Both give scores in [0, 1], or none. Each question is put to the judge an odd number of times, at a temperature above 0
and with the passages in another order, and what more than half say counts (self-consistency: Wang et al., 2022).
Without a majority there is no score, and nothing is paid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, Protocol, TypeVar

from thresher.train.judges.material import Material
from thresher.train.judges.model import JudgeModel
from thresher.train.judges.prompts import BETTER, FIRST, LEVELS, SECOND, TIE, UNMET, Asking
from thresher.train.judges.rubrics import Rubric
from thresher.train.judges.stats import JudgeStats
from thresher.train.judges.votes import majority

logger = logging.getLogger(__name__)

VOTES = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that was voted on. `word` is None without a majority; no votes at all: nobody had to be asked."""

    of: str
    word: str | None
    votes: tuple[str | None, ...] = ()

    @property
    def unanimous(self) -> bool:
        """Whether all votes that were cast are the same."""
        return len({vote for vote in self.votes if vote is not None}) < 2


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of one search. `score` in [0, 1]; None if it came to nothing."""

    score: float | None
    decisions: tuple[Decision, ...] = field(default=())


class Judge(Protocol):
    """What scores the searches of one task."""

    needs_answer: bool
    pairwise: bool

    @property
    def stats(self) -> JudgeStats:
        """What it came to so far."""

    async def judge(self, materials: Sequence[Material], *, reference: int = 0) -> list[Judgement]:
        """A judgement of each, in their order.

        Args:
            reference: the place of the search that others are compared with, for judges that do that.

        Raises:
            JudgeUnavailable: the judge cannot be asked.
        """

    async def check(self) -> None:
        """Make sure that it answers. Raises `JudgeUnavailable`."""

    async def aclose(self) -> None:
        """Close what it holds."""


class RubricJudge:
    """Scores each search by itself: the share of all criteria that are met, by weight ("partly" is half).

    A criterion without a majority adds nothing and stays in the whole, so that confusing a judge never pays; if none
    has a majority there is no score. Where there is no answer with any content, criteria of rubrics that judge an
    answer are unmet without a question. The score is less for answers that are too long (`Material.brevity`).
    (Rubrics as rewards: Gunjal et al., 2025.)
    """

    pairwise = False

    def __init__(self, model: JudgeModel, rubrics: Sequence[Rubric], *, votes: int = VOTES) -> None:
        self._model = model
        self._rubrics = tuple(rubrics)
        self._votes = _odd(votes)
        self.needs_answer = any(rubric.needs_answer for rubric in rubrics)

    @property
    def stats(self) -> JudgeStats:
        """What it came to so far."""
        return self._model.stats

    async def judge(self, materials: Sequence[Material], *, reference: int = 0) -> list[Judgement]:
        """A judgement of each; see `Judge`. Searches that look the same are asked about once."""
        each = await together(self._one(material) for material in {m.digest: m for m in materials}.values())
        by_digest = dict(zip({m.digest: m for m in materials}, each, strict=True))
        for material in materials:
            self.stats.stripped += material.stripped
            scored = by_digest[material.digest].score is not None
            self.stats.judged += scored
            self.stats.unscored += not scored
        return [_briefly(by_digest[material.digest], material, self.needs_answer) for material in materials]

    async def check(self) -> None:
        """Make sure that the judge answers."""
        await self._model.check()

    async def aclose(self) -> None:
        """Close what it holds."""
        await self._model.aclose()

    async def _one(self, material: Material) -> Judgement:
        decided = await together(self._by(material, rubric) for rubric in self._rubrics)
        decisions = tuple(decision for each in decided for decision in each)
        if all(decision.word is None for decision in decisions):
            return Judgement(None, decisions)
        earned = whole = 0.0
        for rubric, each in zip(self._rubrics, decided, strict=True):
            weights = [criterion.weight for criterion in rubric.criteria]
            for weight, decision in zip(weights, each, strict=True):
                share = rubric.weight * weight / sum(weights)
                whole += share
                earned += share * (0.0 if decision.word is None else LEVELS[decision.word])
        return Judgement(earned / whole, decisions)

    async def _by(self, material: Material, rubric: Rubric) -> list[Decision]:
        names = [criterion.id for criterion in rubric.criteria]
        if rubric.needs_answer and not material.says_something:
            self.stats.unasked += len(names)
            return [Decision(f"{rubric.name}.{name}", UNMET) for name in names]
        votes = await together(
            self._model.vote(
                Asking.by_rubric(material, rubric, order=number),
                number,
                {"rubric": rubric.name, "question": material.question},
            )
            for number in range(self._votes)
        )
        decisions = []
        for name in names:
            cast = tuple(None if vote.verdicts is None else vote.verdicts[name] for vote in votes)
            decision = Decision(f"{rubric.name}.{name}", majority(cast, self._votes), cast)
            self.stats.decided(cast, decision.word)
            if not decision.unanimous:
                logger.info("judges disagree on %s of %r: %s", decision.of, material.question, cast)
            decisions.append(decision)
        return decisions


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which of two searches is better. `word` is `first`, `second`, `tie`, or None without majorities.

    `consistent`: whether both orders say the same; None without majorities.
    """

    word: str | None
    consistent: bool | None


class PairwiseJudge:
    """Scores searches of one question against each other.

    Each pair is shown in both orders: a win counts only if both say so, else it is a tie, since judges prefer a place
    (Zheng et al., 2023). `all`: a round robin, and a search's score is its mean over all others, a tie being half (win
    rates as rewards of a group: Pref-GRPO, Wang et al., 2025). `reference`: each is compared with one of the group,
    whose own score is ½: n − 1 pairs in place of n(n − 1)/2. A pair without majorities pays neither side anything.
    """

    pairwise = True
    needs_answer = True

    def __init__(
        self, model: JudgeModel, *, votes: int = 1, against: Literal["all", "reference"] = "reference"
    ) -> None:
        self._model = model
        self._votes = _odd(votes)
        self._against = against

    @property
    def stats(self) -> JudgeStats:
        """What it came to so far."""
        return self._model.stats

    async def judge(self, materials: Sequence[Material], *, reference: int = 0) -> list[Judgement]:
        """A judgement of each; see `Judge`. One alone has nothing to be compared with: no score."""
        for material in materials:
            self.stats.stripped += material.stripped
        count = len(materials)
        if self._against == "reference":
            pairs = [(reference, other) for other in range(count) if other != reference]
        else:
            pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
        compared = await together(self.compare(materials[one], materials[other]) for one, other in pairs)
        points: list[list[float]] = [[] for _ in materials]
        decided = [False] * count
        for (one, other), comparison in zip(pairs, compared, strict=True):
            known = comparison.word is not None
            decided[one] |= known
            decided[other] |= known
            points[one].append(_POINTS[comparison.word][0])
            points[other].append(_POINTS[comparison.word][1])
        if self._against == "reference" and count > 1:
            points[reference], decided[reference] = [0.5], any(decided)
        scores = [fmean(own) if own and known else None for own, known in zip(points, decided, strict=True)]
        self.stats.judged += sum(score is not None for score in scores)
        self.stats.unscored += sum(score is None for score in scores)
        return [_briefly(Judgement(s), m, self.needs_answer) for s, m in zip(scores, materials, strict=True)]

    async def compare(self, one: Material, other: Material) -> Comparison:
        """Which of two is better. What looks the same is a tie, and an answer without content loses, unasked."""
        if one.digest == other.digest:
            return Comparison(TIE, True)
        if one.says_something != other.says_something:
            self.stats.unasked += 1
            return Comparison(FIRST if one.says_something else SECOND, True)
        forth, back = await together((self._in_order(one, other), self._in_order(other, one)))
        self.stats.comparisons += 1
        if forth is None or back is None:
            return Comparison(None, None)
        back = {FIRST: SECOND, SECOND: FIRST, TIE: TIE}[back]
        if forth == back:
            return Comparison(forth, True)
        self.stats.inconsistent += 1
        logger.info("a judge's two orders differ on %r: %s, and %s turned round", one.question, forth, back)
        return Comparison(TIE, False)

    async def check(self) -> None:
        """Make sure that the judge answers."""
        await self._model.check()

    async def aclose(self) -> None:
        """Close what it holds."""
        await self._model.aclose()

    async def _in_order(self, first: Material, second: Material) -> str | None:
        votes = await together(
            self._model.vote(
                Asking.of_pair(first, second, order=number), number, {"rubric": "pair", "question": first.question}
            )
            for number in range(self._votes)
        )
        cast = [None if vote.verdicts is None else vote.verdicts[BETTER] for vote in votes]
        word = majority(cast, self._votes)
        self.stats.decided(cast, word)
        self.stats.first += word == FIRST
        self.stats.second += word == SECOND
        return word


_POINTS = {FIRST: (1.0, 0.0), SECOND: (0.0, 1.0), TIE: (0.5, 0.5), None: (0.0, 0.0)}


def _briefly(judgement: Judgement, material: Material, answers: bool) -> Judgement:
    """Less for an answer that is too long."""
    if judgement.score is None or not answers:
        return judgement
    return Judgement(judgement.score * material.brevity, judgement.decisions)


def _odd(votes: int) -> int:
    if votes < 1 or votes % 2 == 0:
        raise ValueError(f"votes of a judge must be an odd number, so that there is a majority, got {votes}")
    return votes


async def together(works: Iterable[Awaitable[T]]) -> list[T]:
    """All of them at once. The first that fails ends the others, and its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
