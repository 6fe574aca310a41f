"""Retrieval metrics by document id. Every function is pure; lists are in rank order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

BOOTSTRAP_SAMPLES = 10_000
BOOTSTRAP_SEED = 20_240_613


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
    generator = np.random.default_rng(seed)
    means = np.empty(samples)
    for i in range(samples):  # a row at a time: 10,000 × 10,000 indices at once would not fit
        means[i] = differences[generator.integers(0, len(differences), len(differences))].mean()
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(differences.mean()), float(low), float(high))


def _gold(gold: Collection[str]) -> set[str]:
    if not gold:
        raise ValueError("a query without gold documents has no recall; count it apart")
    return set(gold)
