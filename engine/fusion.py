"""Fusing ranked lists of whatever can be hashed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from thresher.corpus.retrieval.fusion import RRF_K, reciprocal_rank_fusion

Key = TypeVar("Key", bound=Hashable)


def fuse(rankings: Sequence[Sequence[Key]], *, k: int = RRF_K) -> list[tuple[Key, float]]:
    """Reciprocal rank fusion with equal weights, best first; ties go to what stands higher in the earlier ranking.

    Returns:
        (key, score) with score = Σ 1 / (k + rank), ranks from 1.
    """
    keys = list(dict.fromkeys(key for ranking in rankings for key in ranking))
    numbers = {key: number for number, key in enumerate(keys)}
    numbered = [[numbers[key] for key in dict.fromkeys(ranking)] for ranking in rankings]
    return [(keys[number], score) for number, score in reciprocal_rank_fusion(numbered, k=k)]
