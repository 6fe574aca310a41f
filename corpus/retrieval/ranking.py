"""How a search ranks what it found: which fusion, whether near-duplicates collapse, which reranker reads the top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from thresher.corpus.documents import Hit
from thresher.corpus.embedders.base import embedding_input
from thresher.corpus.errors import InvalidRanking, RerankError
from thresher.corpus.retrieval.near_duplicates import NEAR_DUPLICATE, collapse
from thresher.corpus.retrieval.rerank.base import Reranker, checked_scores

RRF = "rrf"
TUNED = "tuned"
_CONVEX = "convex:"
FUSIONS = "rrf, tuned, convex:ALPHA with ALPHA in [0, 1]"

MIN_DEPTH, MAX_DEPTH = 20, 50

Warn = Callable[[str], None]
"""Told, in words for the caller, of what went wrong without ending the search."""


def fixed_alpha(fusion: str) -> float | None:
    """The weight that `convex:ALPHA` names; None for `rrf` and `tuned`.

    Raises:
        InvalidRanking: there is no such fusion.
    """
    if fusion in (RRF, TUNED):
        return None
    if fusion.startswith(_CONVEX):
        try:
            alpha = float(fusion.removeprefix(_CONVEX))
        except ValueError:
            alpha = math.nan
        if 0.0 <= alpha <= 1.0:
            return alpha
    raise InvalidRanking(f"unknown fusion {fusion!r}; choose one of {FUSIONS}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A way of ranking. The default is reciprocal rank fusion and nothing else.

    Attributes:
        fusion: `rrf`; `convex:ALPHA`, where ALPHA in [0, 1] is the weight of the dense score; or `tuned`, what
            `tune_fusion` learned from labels for this collection (`rrf` where nothing was learned).
        near_duplicates: collapse passages of which at least this share stands in a better ranked one, in (0, 1];
            None keeps all.
        reranker: reads the query beside each of the first `depth` passages and orders them; None keeps the order.
        depth: how many passages the reranker reads, in 20..50.

    Raises:
        InvalidRanking: a value that is none of these.
    """

    fusion: str = RRF
    near_duplicates: float | None = None
    reranker: Reranker | None = None
    depth: int = MAX_DEPTH

    def __post_init__(self) -> None:
        fixed_alpha(self.fusion)
        if self.near_duplicates is not None and not 0.0 < self.near_duplicates <= 1.0:
            raise InvalidRanking(
                f"near_duplicates is a share of a passage in (0, 1], got {self.near_duplicates}; "
                f"{NEAR_DUPLICATE} is a good one"
            )
        if isinstance(self.depth, bool) or not MIN_DEPTH <= self.depth <= MAX_DEPTH:
            raise InvalidRanking(f"the rerank depth must lie in {MIN_DEPTH}..{MAX_DEPTH}, got {self.depth}")

    @property
    def by_rank_only(self) -> bool:
        """Whether hits come in the order of their reciprocal-rank scores."""
        return self.fusion == RRF and self.reranker is None

    def describe(self) -> str:
        """In words, for reports."""
        parts = [self.fusion]
        if self.near_duplicates is not None:
            parts.append(f"near-duplicates from {self.near_duplicates:g}")
        if self.reranker is not None:
            parts.append(f"{self.reranker.spec} on the first {self.depth}")
        return ", ".join(parts)


PLAIN = Ranking()
"""Reciprocal rank fusion and nothing else."""


def load_ranking(
    *,
    fusion: str = RRF,
    near_duplicates: bool | float = False,
    reranker: str | None = None,
    depth: int = MAX_DEPTH,
) -> Ranking:
    """A ranking from settings: `near_duplicates` is true for the measured threshold, `reranker` a spec.

    Raises:
        InvalidRanking: a value that does not exist.
        RerankError: an unknown reranker.
    """
    from thresher.corpus.retrieval.rerank import load_reranker

    threshold: float | None = NEAR_DUPLICATE if near_duplicates is True else near_duplicates or None
    # Checked before a reranker is made, which may open connections.
    plain = Ranking(fusion, threshold, None, depth)
    return plain if not reranker else Ranking(fusion, threshold, load_reranker(reranker), depth)


def collapsed(hits: Sequence[Hit], threshold: float) -> list[Hit]:
    """The hits without near-duplicates of better ones; each names those that collapsed into it."""
    groups = collapse(((hit.chunk.id, hit.chunk.text) for hit in hits), threshold)
    return [replace(hit, duplicates=tuple(groups[hit.chunk.id])) for hit in hits if hit.chunk.id in groups]


def reranked(query: str, hits: list[Hit], reranker: Reranker, depth: int, warn: Warn) -> list[Hit]:
    """The first `depth` by the reranker's score, ties as they were; below them, the order they had.

    A hit that moves takes over the `rank` of the place it moves to, so places that were left out stay counted. If the
    reranker fails, the order stays and `warn` is told.
    """
    top, rest = hits[:depth], hits[depth:]
    if not top:
        return hits
    texts = [embedding_input(hit.chunk.title, hit.chunk.text) for hit in top]
    try:
        # Checked here as well: the order must not depend on an implementation that forgot to.
        scores = checked_scores(reranker.scores(query, texts), len(texts), reranker.spec)
    except RerankError as error:
        warn(f"not reranked, the fused order stands: {error}")
        return hits
    except Exception as error:  # a broken reranker must not cost the search its results
        warn(f"not reranked, the fused order stands: the reranker broke ({type(error).__name__}: {error})")
        return hits
    order = sorted(range(len(top)), key=lambda place: -scores[place])
    moved = [replace(top[place], rerank=scores[place], rank=hit.rank) for place, hit in zip(order, top, strict=True)]
    return moved + rest
