"""How a dense and a BM25 ranking become one: by rank (the default), or by a convex combination of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RRF_K = 60


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]], *, k: int = RRF_K) -> list[tuple[int, float]]:
    """Fuse rankings of ids with equal weights: score(id) = Σ 1 / (k + rank), ranks from 1.

    An id missing from a ranking simply gets no term from it. Ties go to the id that stands higher in the earlier
    ranking, then to the smaller id, so equal inputs always give equal outputs.

    Source: Cormack, Clarke and Büttcher (SIGIR 2009).

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


def convex_combination(cosine: Mapping[int, float], bm25: Mapping[int, float], alpha: float) -> list[tuple[int, float]]:
    """Fuse by score: alpha · dense + (1 − alpha) · BM25, both brought to [0, 1] first.

    Each score is divided by the best one of the query, measured from the least that the scoring function can give
    (−1 for a cosine, 0 for BM25), not from the least among the candidates: how deep one fetched then changes nothing.
    Ties go to the better cosine, then to the smaller id.

    Both arguments must hold the true score of every candidate, whichever ranking it came from; a candidate without a
    BM25 score shares no term with the query, which is a true 0.

    Source: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (TOIS 2023), TM2C2.

    Returns:
        (id, score in [0, 1]), best first.

    Raises:
        ValueError: a candidate has no cosine, or alpha lies outside [0, 1].
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha}")
    if missing := bm25.keys() - cosine.keys():
        raise ValueError(f"{len(missing)} candidates have no cosine (first: {min(missing)})")
    top_cosine = max(cosine.values(), default=0.0) + 1.0
    top_bm25 = max(bm25.values(), default=0.0)
    scores = {}
    for identifier, similarity in cosine.items():
        dense = (similarity + 1.0) / top_cosine if top_cosine > 0.0 else 0.0
        lexical = bm25.get(identifier, 0.0) / top_bm25 if top_bm25 > 0.0 else 0.0
        scores[identifier] = alpha * dense + (1.0 - alpha) * lexical
    return sorted(scores.items(), key=lambda item: (-item[1], -cosine[item[0]], item[0]))


def score_at(rank: int) -> float:
    """The reciprocal-rank score of what stands at `rank` (from 0) in both rankings.

    It puts the place in any ranking, whatever its own scores mean, on the scale of the default one.
    """
    return 2.0 / (RRF_K + rank + 1)
