"""Learning how to fuse from labelled questions: one weight, and an honest account of what it gains.

Fusing by score can be better than fusing by rank, but needs a weight that fits the corpus and the embedder, hence
labels. The weight is chosen on a grid by mean nDCG@10 over documents. What is reported as its gain was measured on
questions that had no part in choosing it (repeated cross-validation), against fusion by rank on the same questions;
it is put in use only if the 95 % interval of that gain lies above zero.

Source: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (TOIS 2023): a handful of labels
is enough for one weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thresher.corpus.errors import InvalidLabels
from thresher.corpus.record.tuning import Tuning, load_tuning, save_tuning
from thresher.corpus.retrieval.fusion import convex_combination, reciprocal_rank_fusion

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.corpus.retrieval.search import Candidates

Floats = npt.NDArray[np.float64]

MIN_QUESTIONS = 40
"""With fewer questions that tell fusions apart, nothing is learned: the interval would not mean anything."""
GRID = tuple(step / 20 for step in range(21))
FOLDS, REPEATS = 5, 4
CUT = 10
_SAMPLES = 10_000
_SEED = 20_230_817


@dataclass(frozen=True, slots=True)
class Labelled:
    """A question and the documents that answer it."""

    question: str
    gold_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What was learned, and what it is worth. All figures are means over questions, in [0, 1].

    Attributes:
        questions: labelled questions whose gold documents are in the collection; `unknown` had none there.
        informative: questions with a gold document among the candidates; for the others every fusion is the same.
        alpha: the weight that is best on all questions; None where nothing was learned.
        adopted: whether it was put in use for `fusion="tuned"`; `reason` says why or why not.
        rrf_ndcg, tuned_ndcg: nDCG@10 of fusion by rank, and of held-out questions under a weight chosen without them.
        rrf_recall, tuned_recall: recall@10, likewise.
        gain, gain_low, gain_high: the difference of the nDCGs, and the bounds of its 95 % interval.
        curve: (alpha, nDCG@10 on all questions), in the order of the grid.
    """

    questions: int
    unknown: int
    informative: int
    alpha: float | None
    adopted: bool
    reason: str
    rrf_ndcg: float = 0.0
    tuned_ndcg: float = 0.0
    rrf_recall: float = 0.0
    tuned_recall: float = 0.0
    gain: float = 0.0
    gain_low: float = 0.0
    gain_high: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Pool:
    """One question: its gold documents, and what a search for it fuses."""

    gold: frozenset[str]
    found: Candidates

    @property
    def informative(self) -> bool:
        return not self.gold.isdisjoint(self.found.document.values())


def tune_fusion(
    collection: Collection,
    labelled: Sequence[Labelled],
    *,
    save: bool = True,
    on_question: Callable[[int, int], None] | None = None,
) -> TuneReport:
    """Learn the weight of the convex combination for a collection.

    With `save`, the outcome is kept in the collection's record for `fusion="tuned"`: the weight where it is better
    than fusion by rank beyond doubt, else that fusion by rank stands. It holds for the embedder and analyzer of now.

    Args:
        labelled: questions as they will be asked, with ids of documents in the collection.
        on_question: called before each question with its number from 0 and their count.

    Raises:
        InvalidLabels: there are no questions, one is blank or has no gold document, or no gold document of any is in
            the collection.
    """
    known, unknown = _checked(collection, labelled)
    pools: list[_Pool] = []
    for number, item in enumerate(known):
        if on_question is not None:
            on_question(number, len(known))
        pools.append(_Pool(frozenset(item.gold_ids), collection.candidates(item.question)))
    report = _learn(pools, unknown)
    if save:
        keep_tuning(collection, report.alpha if report.adopted else None, questions=report.questions)
    return report


def keep_tuning(collection: Collection, alpha: float | None, *, questions: int) -> Tuning:
    """Have `fusion="tuned"` use this weight from now on; None for fusion by rank."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    tuning = Tuning(collection.scoring, alpha, questions, at)
    with collection.record.write() as connection:
        save_tuning(connection, tuning)
    return tuning


def kept_tuning(collection: Collection) -> Tuning | None:
    """What `fusion="tuned"` goes by; None if the collection was never tuned, or with another embedder or analyzer."""
    with collection.record.read() as connection:
        tuning = load_tuning(connection)
    return tuning if tuning is not None and tuning.identity == collection.scoring else None


def _checked(collection: Collection, labelled: Sequence[Labelled]) -> tuple[list[Labelled], int]:
    """The questions with gold in the collection, without the gold that is not; and how many have none there."""
    if not labelled:
        raise InvalidLabels("there are no labelled questions: give some, each with the ids of its gold documents")
    for number, item in enumerate(labelled, 1):
        if not item.question.strip():
            raise InvalidLabels(f"labelled question {number} is blank")
        if not item.gold_ids:
            raise InvalidLabels(f"labelled question {number} has no gold document: {item.question[:100]!r}")
    held = collection.document_hashes({document_id for item in labelled for document_id in item.gold_ids})
    known = [
        Labelled(item.question, gold) for item in labelled if (gold := tuple(i for i in item.gold_ids if i in held))
    ]
    if not known:
        raise InvalidLabels(
            f"no gold document of any of the {len(labelled)} questions is in collection {collection.name!r} "
            f"(for example {labelled[0].gold_ids[0]!r}): gold ids must be document ids as `thresher ls` prints them"
        )
    return known, len(labelled) - len(known)


def _learn(pools: Sequence[_Pool], unknown: int) -> TuneReport:
    informative = sum(pool.informative for pool in pools)
    if informative < MIN_QUESTIONS:
        return TuneReport(
            questions=len(pools),
            unknown=unknown,
            informative=informative,
            alpha=None,
            adopted=False,
            reason=f"too few labels: {informative} of {len(pools)} questions have a gold document among the "
            f"candidates, {MIN_QUESTIONS} are needed; ranks stay fused",
        )
    by_rank = np.array([_quality(pool, reciprocal_rank_fusion(pool.found.rankings)) for pool in pools])
    by_score = np.array(
        [
            [_quality(pool, convex_combination(pool.found.cosine, pool.found.bm25, alpha)) for pool in pools]
            for alpha in GRID
        ]
    )
    held_out = _held_out(by_score)
    low, high = _interval(held_out[:, 0] - by_rank[:, 0])
    curve = by_score[:, :, 0].mean(axis=1)
    best = GRID[int(curve.argmax())]
    gain = float((held_out[:, 0] - by_rank[:, 0]).mean())
    adopted = low > 0.0
    verdict = "better than fusion by rank" if adopted else "not better than fusion by rank beyond doubt"
    return TuneReport(
        questions=len(pools),
        unknown=unknown,
        informative=informative,
        alpha=best,
        adopted=adopted,
        reason=f"{verdict}: nDCG@{CUT} of held-out questions {gain:+.4f} (95 % interval {low:+.4f} to {high:+.4f})"
        + ("" if adopted else "; ranks stay fused"),
        rrf_ndcg=float(by_rank[:, 0].mean()),
        tuned_ndcg=float(held_out[:, 0].mean()),
        rrf_recall=float(by_rank[:, 1].mean()),
        tuned_recall=float(held_out[:, 1].mean()),
        gain=gain,
        gain_low=low,
        gain_high=high,
        curve=tuple(zip(GRID, curve.tolist(), strict=True)),
    )


def _held_out(by_score: Floats) -> Floats:
    """Quality of each question under weights chosen without it, shape (questions, 2); `by_score` (grid, questions, 2).

    The mean over several ways of cutting the questions into folds: one way alone would be a matter of luck.
    """
    questions = by_score.shape[1]
    rng = np.random.default_rng(_SEED)
    total = np.zeros((questions, 2))
    for _ in range(REPEATS):
        for fold in np.array_split(rng.permutation(questions), FOLDS):
            others = np.ones(questions, dtype=bool)
            others[fold] = False
            chosen = int(by_score[:, others, 0].mean(axis=1).argmax())
            total[fold] += by_score[chosen, fold]
    return total / REPEATS


def _interval(differences: Floats) -> tuple[float, float]:
    """The bounds of the 95 % percentile-bootstrap interval of the mean (Efron and Tibshirani, 1993)."""
    rng = np.random.default_rng(_SEED)
    means = [differences[rng.integers(0, len(differences), len(differences))].mean() for _ in range(_SAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _quality(pool: _Pool, fused: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(nDCG, recall) at `CUT` of the documents, each counted where it first occurs."""
    documents = dict.fromkeys(pool.found.document[i] for i, _ in fused if i in pool.found.document)
    found = [place for place, document in enumerate(list(documents)[:CUT]) if document in pool.gold]
    ideal = sum(1 / math.log2(place + 2) for place in range(min(CUT, len(pool.gold))))
    return sum(1 / math.log2(place + 2) for place in found) / ideal, len(found) / len(pool.gold)
