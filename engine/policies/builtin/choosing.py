"""How scored options become choices: the best ones when serving, drawn ones in training.

Orders are drawn from the Plackett-Luce model: one option after the other, each with a chance proportional to
exp(score / temperature) among those that are left (Plackett, 1975). With Gumbel noise on the scores one sort draws the
whole order (Yellott, 1977). Yes or no is drawn with the logistic chance of its score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from thresher.engine.policies.builtin.weights import Floats, Head, Kind, Weights


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One choice as it was made.

    Attributes:
        table: features of the options, shape (options, features); one row for a choice of yes or no.
        picked: rows in the order in which they were taken; (1,) for yes and (0,) for no.
        groups: of the rows, of each of which at most `per_group` may be taken; None: no such bound.
        logprob: of what was picked, under the weights that it was drawn with.
    """

    kind: Kind
    table: Floats
    picked: tuple[int, ...]
    logprob: float
    temperature: float = 1.0
    groups: tuple[int, ...] | None = None
    per_group: int = 0


class Chooser(Protocol):
    """Turns scores into choices."""

    def order(
        self, kind: Kind, head: Head, table: Floats, count: int, *, groups: Sequence[int] | None, per_group: int
    ) -> list[int]:
        """At most `count` rows of `table`, at most `per_group` of a group, best first."""

    def yes(self, kind: Kind, head: Head, row: Floats) -> bool:
        """Yes or no, by features of shape (1, features)."""


class Best:
    """Takes what scores best. Ties go to the option that comes first."""

    def order(
        self, kind: Kind, head: Head, table: Floats, count: int, *, groups: Sequence[int] | None, per_group: int
    ) -> list[int]:
        """The best rows."""
        return _taken(head.scores(table), count, groups, per_group)

    def yes(self, kind: Kind, head: Head, row: Floats) -> bool:
        """Whether the score is positive."""
        return bool(head.scores(row)[0] > 0)


@dataclass(eq=False)
class Drawing:
    """Draws choices, and keeps them for training. `seed` decides what is drawn; serving never draws.

    Attributes:
        records: where the choices of each seed are put, in the order in which they are made.
        explored: kinds that are drawn; the others take the best.
        keeps_all: keep the choices of the others, too, with a log-probability of 0.
    """

    records: dict[int, list[Choice]] = field(default_factory=dict)
    temperature: float = 1.0
    explored: frozenset[Kind] = frozenset(Kind)
    keeps_all: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(self.seed)
        self._own: list[Choice] = []
        self.records[self.seed] = self._own  # of a search that was run again, the last run counts

    def reseeded(self, seed: int) -> Drawing:
        """The same for another search, which puts its choices into the same place."""
        return Drawing(self.records, self.temperature, self.explored, self.keeps_all, seed)

    def order(
        self, kind: Kind, head: Head, table: Floats, count: int, *, groups: Sequence[int] | None, per_group: int
    ) -> list[int]:
        """Rows drawn one after the other."""
        scores = head.scores(table)
        kept = None if groups is None else tuple(groups)
        if kind not in self.explored or not len(scores):
            best = _taken(scores, count, groups, per_group)
            self._keep_best(Choice(kind, table, tuple(best), 0.0, self.temperature, kept, per_group))
            return best
        noise = self._generator.gumbel(size=len(scores))
        picked = _taken(scores / self.temperature + noise, count, groups, per_group)
        logprob, _ = order_logprob(scores / self.temperature, picked, kept, per_group)
        self._own.append(Choice(kind, table, tuple(picked), logprob, self.temperature, kept, per_group))
        return picked

    def yes(self, kind: Kind, head: Head, row: Floats) -> bool:
        """Yes with the logistic chance of the score."""
        score = float(head.scores(row)[0])
        if kind not in self.explored:
            self._keep_best(Choice(kind, row, (int(score > 0),), 0.0, self.temperature))
            return score > 0
        chosen = bool(self._generator.random() < 1 / (1 + np.exp(-score / self.temperature)))
        logprob, _ = answer_logprob(score / self.temperature, chosen)
        self._own.append(Choice(kind, row, (int(chosen),), logprob, self.temperature))
        return chosen

    def _keep_best(self, choice: Choice) -> None:
        if self.keeps_all:
            self._own.append(choice)


def order_logprob(
    scores: Floats, picked: Sequence[int], groups: Sequence[int] | None = None, per_group: int = 0
) -> tuple[float, Floats]:
    """Log-probability of drawing `picked` in this order, and its gradient by `scores`, shape (options,)."""
    gradient = np.zeros(len(scores))
    free = np.ones(len(scores), dtype=bool)
    own = None if groups is None else np.asarray(groups)
    used: dict[int, int] = {}
    total = 0.0
    for row in picked:
        shifted = np.where(free, scores, -np.inf)
        top = shifted.max()
        chances = np.exp(shifted - top)
        mass = chances.sum()
        total += float(scores[row] - top - np.log(mass))
        gradient -= chances / mass
        gradient[row] += 1.0
        free[row] = False
        if own is not None:
            group = int(own[row])
            used[group] = used.get(group, 0) + 1
            if used[group] >= per_group:
                free &= own != group
    return total, gradient


def answer_logprob(score: float, chosen: bool) -> tuple[float, float]:
    """Log-probability of a yes or no, and its derivative by the score."""
    sign = 1.0 if chosen else -1.0
    return -float(np.logaddexp(0.0, -sign * score)), sign / (1.0 + float(np.exp(np.clip(sign * score, -500, 500))))


def first_of_each(
    rows: Iterable[int], count: int, groups: Sequence[int] | None = None, per_group: int = 0
) -> list[int]:
    """The first `count` of `rows`, at most `per_group` of a group."""
    picked: list[int] = []
    used: dict[int, int] = {}
    for row in rows:
        if len(picked) >= count:
            break
        if groups is not None:
            if used.get(groups[row], 0) >= per_group:
                continue
            used[groups[row]] = used.get(groups[row], 0) + 1
        picked.append(row)
    return picked


def _taken(scores: Floats, count: int, groups: Sequence[int] | None, per_group: int) -> list[int]:
    return first_of_each(np.argsort(-scores, kind="stable").tolist(), count, groups, per_group)


@dataclass(frozen=True, slots=True)
class Choices:
    """Weights and the way to choose by them: what a policy asks."""

    weights: Weights
    chooser: Chooser = field(default_factory=Best)

    def order(
        self, kind: Kind, table: Floats, count: int, *, groups: Sequence[int] | None = None, per_group: int = 0
    ) -> list[int]:
        """At most `count` rows of `table`, best first."""
        return self.chooser.order(kind, self.weights.heads[kind], table, count, groups=groups, per_group=per_group)

    def yes(self, kind: Kind, row: Floats) -> bool:
        """Yes or no."""
        return self.chooser.yes(kind, self.weights.heads[kind], row)
