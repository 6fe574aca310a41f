"""Retrieval metrics by document id. Every function is pure; lists are in rank order."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BOOTSTRAP_SAMPLES = 10_000
BOOTSTRAP_SEED = 20_240_613
_DRAWN = 4_000_000
"""Indices drawn at once: 10,000 samples of 10,000 queries would not fit."""


def distinct(ids: Iterable[str]) -> list[str]:
    """Ids in order of first occurrence: passages to documents."""
    return list(dict.fromkeys(ids))


def recall(found: Collection[str], gold: Collection[str]) -> float:
    """Share of the gold documents that were found, in [0, 1]. `gold` must not be empty."""
    wanted = _gold(gold)
    return len(wanted.intersection(found)) / len(wanted)


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Share of the gold documents among the first `k` distinct documents."""
    return recall(distinct(ranked)[:k], gold)


def all_gold_at(ranked: Sequence[str], gold: Collection[str], k: int) -> bool:
    """Whether the first `k` distinct documents hold every gold document."""
    return _gold(gold) <= set(distinct(ranked)[:k])


def precision(ranked: Sequence[str], gold: Collection[str]) -> float:
    """Share of the returned distinct documents that are gold; nothing returned is 0."""
    documents = distinct(ranked)
    return len(_gold(gold).intersection(documents)) / len(documents) if documents else 0.0


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain of the first `k` distinct documents, in [0, 1]; a document is gold or not.

    A gold document in place i, from 1, gains 1 / log2(i + 1); the gain is divided by that of the best order (Järvelin
    and Kekäläinen, 2002).
    """
    wanted = _gold(gold)
    gain = sum(_discount(place) for place, own in enumerate(distinct(ranked)[:k], 1) if own in wanted)
    return gain / sum(_discount(place) for place in range(1, min(len(wanted), k) + 1))


def _discount(place: int) -> float:
    return 1 / math.log2(place + 1)


def prune_accuracy(pruned: Iterable[tuple[str, Collection[str]]]) -> float | None:
    """Share of pruned chunks whose document is not gold; each chunk as (its document, the query's gold).

    None if nothing was pruned. Over all chunks, not a mean of queries: a query that pruned one chunk counts as one.
    """
    return mean(document not in gold for document, gold in pruned)


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean; None of nothing."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def percentile(values: Iterable[float], q: float) -> float | None:
    """Percentile by linear interpolation, `q` in 0..100; None of nothing."""
    numbers = list(values)
    return float(np.percentile(numbers, q)) if numbers else None


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    ours: Sequence[float], theirs: Sequence[float], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = BOOTSTRAP_SEED
) -> Interval | None:
    """95 % percentile-bootstrap interval of mean(ours − theirs) over queries, both measured on the same queries.

    Queries are resampled, so each pair stays together (Efron and Tibshirani, 1993). None without queries.
    """
    if len(ours) != len(theirs):
        raise ValueError(
            f"a paired comparison needs one value a query on both sides, got {len(ours)} and {len(theirs)}"
        )
    if not ours:
        return None
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    means = bootstrap_means(differences[:, None], samples=samples, seed=seed)[:, 0]
    low, high = bounds(means)
    return Interval(float(differences.mean()), low, high)


def bootstrap_means(
    values: npt.NDArray[np.float64], *, samples: int = BOOTSTRAP_SAMPLES, seed: int | Sequence[int] = BOOTSTRAP_SEED
) -> npt.NDArray[np.float64]:
    """Means of resampled queries.

    All columns are resampled alike, so what was measured on the same queries stays together.

    Args:
        values: shape (queries, columns), at least one query.

    Returns:
        Shape (samples, columns).
    """
    queries = len(values)
    generator = np.random.default_rng(seed)
    means = np.empty((samples, values.shape[1]))
    block = max(1, _DRAWN // queries)
    for start in range(0, samples, block):
        size = min(block, samples - start)
        drawn = generator.integers(0, queries, (size, queries)) + np.arange(size)[:, None] * queries
        # How often each query was drawn: one product then gives the means of all columns.
        times = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries)
        means[start : start + size] = times @ values / queries
    return means


def bounds(means: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95 % of resampled means, of shape (samples,)."""
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _gold(gold: Collection[str]) -> set[str]:
    if not gold:
        raise ValueError("a query without gold documents has no recall; count it apart")
    return set(gold)
