"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009), the way two rankings become one."""

from __future__ import annotations

from collections.abc import Sequence

RRF_K = 60


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]], *, k: int = RRF_K) -> list[tuple[int, float]]:
    """Fuse rankings of ids with equal weights: score(id) = Σ 1 / (k + rank), ranks from 1.

    An id missing from a ranking simply gets no term from it. Ties go to the id that stands higher in the earlier
    ranking, then to the smaller id, so equal inputs always give equal outputs.

    Returns:
        (id, score), best first.
    """
    scores: dict[int, float] = {}
    places: dict[int, list[int]] = {}
    absent = 1 + max((len(ranking) for ranking in rankings), default=0)
    for position, ranking in enumerate(rankings):
        for rank, identifier in enumerate(ranking, start=1):
            scores[identifier] = scores.get(identifier, 0.0) + 1.0 / (k + rank)
            places.setdefault(identifier, [absent] * len(rankings))[position] = rank
    return sorted(scores.items(), key=lambda item: (-item[1], places[item[0]], item[0]))
