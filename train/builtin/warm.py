"""The warm start: heads learn from what searches by the rules found, before rewards refine them.

This part is supervised, and says so: rankings learn from gold documents (listwise, one softmax of each gold document
against all that are not gold), queries from whether their search showed gold that was new, the word on the evidence
from which of the two words would have earned more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thresher.engine.policies.builtin.choosing import answer_logprob
from thresher.engine.policies.builtin.weights import Floats, Head, Kind
from thresher.train.builtin.endings import Endings
from thresher.train.builtin.gathering import Episode, Explorer, ranking_targets, useful_queries
from thresher.train.builtin.learning import Adam, added, backward, standardised, with_hidden_units


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Options and which of them are good, shapes (options, features) and (options,); `weight` of the whole."""

    table: Floats
    good: tuple[bool, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class WarmSettings:
    """How the warm start learns.

    Attributes:
        hidden: units of the hidden layer, of the heads for queries and rankings.
        rate: of Adam, going down to 0 linearly; `shrink`: L2 towards the rules, and of hidden units towards none.
    """

    hidden: int = 6
    epochs: int = 30
    batch: int = 16
    rate: float = 0.02
    shrink: float = 0.01
    most_options: int = 20_000


def lessons(explorer: Explorer, episodes: Sequence[Episode]) -> dict[Kind, list[Lesson]]:
    """What episodes teach."""
    found: dict[Kind, list[Lesson]] = {Kind.RANK: [], Kind.QUERY: [], Kind.SUFFICIENT: []}
    for episode in episodes:
        gold = explorer.gold_rows(episode)
        ranking, word = episode.last(Kind.RANK), episode.last(Kind.SUFFICIENT)
        if ranking is not None and len(gold) == len(ranking.table):
            table, good = ranking_targets(ranking, gold)
            if any(good) and not all(good):
                found[Kind.RANK].append(Lesson(table, tuple(good)))
            if word is not None:
                endings = Endings(episode, explorer.scorer, explorer.names(episode))
                gain = endings.reward(ranking.picked, True) - endings.reward(ranking.picked, False)
                found[Kind.SUFFICIENT].append(Lesson(word.table, (gain > 0,), abs(gain)))
        for choice, rows in useful_queries(episode, gold):
            good_rows = tuple(useful for _, useful in rows)
            if any(good_rows) and not all(good_rows):
                found[Kind.QUERY].append(Lesson(choice.table[[row for row, _ in rows]], good_rows))
    return found


def fitted(kind: Kind, head: Head, taught: Sequence[Lesson], settings: WarmSettings, seed: int) -> Head:
    """A head that has learned its lessons, from one without hidden units."""
    if not taught:
        return head
    generator = np.random.default_rng(seed)
    tables = np.concatenate([lesson.table for lesson in taught])
    begun = standardised(head, kind, tables[:: max(1, len(tables) // settings.most_options)])
    if kind is not Kind.SUFFICIENT:
        begun = with_hidden_units(begun, settings.hidden, generator)
    adam = Adam(begun, settings.rate)
    batches = list(_batches(len(taught), settings, generator))
    for number, batch in enumerate(batches):
        gradient: dict[str, Floats] = {}
        for index in batch:
            lesson = taught[index]
            by_scores = lesson.weight * _slope(kind, adam.head.scores(lesson.table), np.array(lesson.good))
            added(gradient, backward(adam.head, lesson.table, by_scores), 1 / settings.batch)
        for name in gradient:
            if name != "offset":
                anchor = begun.linear if name == "linear" else 0.0
                gradient[name] = gradient[name] - 2 * settings.shrink * (getattr(adam.head, name) - anchor)
        adam.climb(gradient, rate=settings.rate * (1 - number / len(batches)))
    return adam.head


def _slope(kind: Kind, scores: Floats, good: NDArray[np.bool_]) -> Floats:
    """Gradient of the log-likelihood of a lesson by scores, shape (options,)."""
    if kind is Kind.SUFFICIENT:
        return np.array([answer_logprob(float(scores[0]), bool(good[0]))[1]])
    bad = np.exp(scores[~good] - scores.max())
    mass = float(bad.sum())
    beaten = 1 / (1 + np.exp(np.clip(scores[good] - scores.max() - np.log(mass + 1e-300), -500, 500)))
    slope = np.zeros(len(scores))
    slope[good] = beaten / good.sum()
    slope[~good] = -bad / (mass + 1e-300) * beaten.sum() / good.sum()
    return slope


def _batches(count: int, settings: WarmSettings, generator: np.random.Generator) -> Iterator[list[int]]:
    for _ in range(settings.epochs):
        order = generator.permutation(count).tolist()
        for start in range(0, count, settings.batch):
            yield order[start : start + settings.batch]
