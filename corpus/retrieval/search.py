"""Hybrid search: dense and BM25 candidates, fused, and then arranged as the ranking wants.

Every candidate is checked against the record before it is ranked, so an index that lags can cost a place in the list
but never show a deleted passage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from thresher.corpus.documents import Hit, Vectors
from thresher.corpus.filters import Filter
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.record.documents import document_ids, live_chunks, load_chunks, matching_chunks
from thresher.corpus.record.oplog import last_seq
from thresher.corpus.record.store import Store
from thresher.corpus.record.tuning import load_tuning
from thresher.corpus.retrieval.beside import Beside
from thresher.corpus.retrieval.fusion import convex_combination, reciprocal_rank_fusion
from thresher.corpus.retrieval.ranking import TUNED, Ranking, Warn, collapsed, fixed_alpha, reranked
from thresher.corpus.retrieval.resolved import Matched, ResolvedFilters
from thresher.corpus.vectors.managed import ManagedDense

Scored = list[tuple[int, float]]
"""(chunk id, score), best first."""

FILTER_EXACT = 5_000
"""Filters that match at most this many chunks (twice as many in a large collection) can be searched exactly."""

ALWAYS_EXACT = 1_000
"""Filters that match at most this many chunks are always searched exactly."""

AT_ONCE = 50_000
"""Collections of at least so many chunks are searched by both indexes at once. On two idle cores the median of a search
falls by a tenth at 100,000 chunks and by 29 % at a million; in a smaller collection it gains nothing."""

_SELECTIVE = 5  # a filter that keeps under one chunk in five: over-fetching would throw most of it away
_VERY_SELECTIVE = 10  # and under one in ten it is worth reading twice as many vectors

_FIRST_FETCH = 100
_TIED = 10
_MAX_GROWTH = 16
_SPARE = 1.5
_DENSE_ROUNDS = 3
_DUPLICATE_ROUNDS = 3
_DUPLICATE_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rankings (dense, BM25) of one query as chunk ids, and of every chunk in them both scores and the document.

    A chunk without a BM25 score shares no term with the query.
    """

    rankings: list[list[int]]
    cosine: dict[int, float]
    bm25: dict[int, float]
    document: dict[int, str]


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """The search of one collection."""

    store: Store
    dense: ManagedDense
    lexical: ManagedLexical
    identity: str = ""
    """What makes the scores (embedder, analyzer): a fusion tuned on others does not apply."""
    filter_exact: int = FILTER_EXACT
    always_exact: int = ALWAYS_EXACT
    _resolved: ResolvedFilters = field(default_factory=ResolvedFilters)
    _beside: Beside = field(default_factory=Beside)

    def __call__(
        self,
        query: str,
        vector: Vectors,
        *,
        limit: int,
        candidates: int,
        where: Filter | None,
        exclude: AbstractSet[int],
        ranking: Ranking,
        warn: Warn,
    ) -> list[Hit]:
        """The `limit` best live chunks that satisfy the filter and are not excluded, best first.

        Excluded chunks keep their place in the ranking, so that `Hit.rank` says how deep a hit really lies.
        """
        # A reranker may bring up what stood below the limit; what collapses is only known when all are read.
        pool = limit if ranking.reranker is None else max(limit, ranking.depth)
        want = max(candidates, pool) + len(exclude)
        alpha = self._alpha(ranking, warn)
        read = pool if ranking.near_duplicates is None else None
        for _ in range(_DUPLICATE_ROUNDS):
            fused, cosine, bm25 = self._candidates(query, vector, want, where, alpha)
            hits = self._hydrate(fused, cosine, bm25, read, where, exclude)
            if ranking.near_duplicates is None:
                break
            hits = collapsed(hits, ranking.near_duplicates)
            if len(hits) >= pool or len(fused) < want:
                break
            want *= _DUPLICATE_GROWTH  # copies fill the list: look below them
        if ranking.reranker is not None:
            hits = reranked(query, hits, ranking.reranker, ranking.depth, warn)
        return hits[:limit]

    def close(self) -> None:
        """End its threads."""
        self._beside.close()

    def candidates(self, query: str, vector: Vectors, want: int) -> Candidates:
        """What a search for `query` fuses, `want` from each index."""
        dense, lexical = self._rankings(query, vector, want, None)
        cosine, bm25 = self._scores(query, vector, dense, lexical)
        with self.store.read() as connection:
            documents = document_ids(connection, list(cosine))
        return Candidates([[i for i, _ in hits] for hits in (dense, lexical)], cosine, bm25, documents)

    def _candidates(
        self, query: str, vector: Vectors, want: int, where: Filter | None, alpha: float | None
    ) -> tuple[Scored, dict[int, float], dict[int, float]]:
        """What either index found, fused, and the cosine and BM25 scores that are known."""
        dense, lexical = self._rankings(query, vector, want, where)
        if alpha is None:
            cosine, bm25 = dict(dense), dict(lexical)
            return reciprocal_rank_fusion([list(cosine), list(bm25)]), cosine, bm25
        cosine, bm25 = self._scores(query, vector, dense, lexical)
        return convex_combination(cosine, bm25, alpha), cosine, bm25

    def _rankings(self, query: str, vector: Vectors, want: int, where: Filter | None) -> tuple[Scored, Scored]:
        """The dense and the BM25 ranking, `want` deep, of live chunks that satisfy the filter."""
        within = self._resolve(where)
        if within is not None:
            return self._dense_within(within, vector, want), self._lexical_within(within, query, want)
        if where is None and (both := self._both(query, vector, want)) is not None:
            return both

        def dense() -> Scored:
            return self._dense(vector, want, where)

        def lexical() -> Scored:
            return self._grow(lambda k: self.lexical.search(query, k), want, where)

        if self.dense.chunks < AT_ONCE:
            return dense(), lexical()
        return self._beside(dense, lexical)

    def _scores(
        self, query: str, vector: Vectors, dense: Scored, lexical: Scored
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Cosine and BM25 of what is in either ranking: a score that an index did not give is not nought."""
        cosine, bm25 = dict(dense), dict(lexical)
        if unseen := [i for i in bm25 if i not in cosine]:
            cosine.update(self.dense.search_within(vector, unseen, len(unseen)))
        if unseen := [i for i in cosine if i not in bm25]:
            bm25.update(self.lexical.search(query, len(unseen), within=unseen))
        # What was deleted meanwhile has no vector any more.
        return cosine, {i: score for i, score in bm25.items() if i in cosine}

    def _alpha(self, ranking: Ranking, warn: Warn) -> float | None:
        """The weight of the dense score; None for fusion by rank."""
        if ranking.fusion != TUNED:
            return fixed_alpha(ranking.fusion)
        with self.store.read() as connection:
            tuning = load_tuning(connection)
        if tuning is None:
            warn("fusion `tuned` was asked for, but this collection was never tuned: ranks are fused (thresher tune)")
            return None
        if tuning.identity != self.identity:
            warn(
                f"the fusion of this collection was tuned for {tuning.identity}, and it now has {self.identity}: "
                "ranks are fused until it is tuned again (thresher tune)"
            )
            return None
        return tuning.alpha

    def _resolve(self, where: Filter | None) -> Matched | None:
        """The matching chunks if it is right and cheap to search just them."""
        if where is None:
            return None
        most = max(
            min(self.filter_exact, self.dense.chunks // _SELECTIVE),
            min(2 * self.filter_exact, self.dense.chunks // _VERY_SELECTIVE),
            self.always_exact,
        )

        def resolve() -> Matched | None:
            ids = matching_chunks(connection, where, most + 1)
            return Matched(ids) if len(ids) <= most else None

        with self.store.read() as connection:
            # True and 1 are equal in Python but not in a filter, hence the text as key.
            return self._resolved((last_seq(connection), most, repr(where)), resolve)

    def _dense_within(self, within: Matched, vector: Vectors, want: int) -> Scored:
        if self.dense.backend[0] == "exact":  # it holds every vector in memory already
            return self.dense.search_within(vector, within.ids, want)
        return within.nearest(self.store, vector, want)

    def _lexical_within(self, within: Matched, query: str, want: int) -> Scored:
        """The best of the matching chunks: picked from a deeper ranking where one is cheaper than a query for them."""
        share = len(within) / max(self.dense.chunks, 1)
        depth = math.ceil(_SPARE * want / share) if share else 0
        if want < depth <= len(within):
            hits = self.lexical.search(query, depth)
            kept = [hit for hit in hits if hit[0] in within.members]
            if len(kept) >= want or len(hits) < depth:
                return kept[:want]
        return self.lexical.search(query, want, within=within.ids)

    def _dense(self, vector: Vectors, want: int, where: Filter | None) -> Scored:
        if where is None:
            # It gives live ones only, as many as it is asked for; a few more, so that ties are cut off by chunk id.
            return self.dense.search(vector, min(want + _TIED, max(_FIRST_FETCH, want)))[:want]
        rounds = _DENSE_ROUNDS if self.dense.backend[0] == "chroma" else None
        found = self._grow(lambda k: self.dense.search(vector, k), want, where, rounds)
        if len(found) >= want or rounds is None:
            return found
        # HNSW degrades with depth; past a few rounds it is cheaper, and certain, to score what the filter matches.
        with self.store.read() as connection:
            allowed = matching_chunks(connection, where)
        return self.dense.search_within(vector, allowed, want)

    def _both(self, query: str, vector: Vectors, want: int) -> tuple[Scored, Scored] | None:
        """Both rankings in one round trip, where a remote index can give them and dead hits do not leave them short."""
        if self.dense.backend[0] != "chroma" or (found := self.lexical.rankings(query, vector, want)) is None:
            return None
        with self.store.read() as connection:
            live = live_chunks(connection, [i for hits in found for i, _ in hits], None)
        dense, lexical = ([hit for hit in hits if hit[0] in live] for hits in found)
        short = any(len(kept) < len(hits) == want for kept, hits in zip((dense, lexical), found, strict=True))
        return None if short else (dense, lexical)

    def _grow(
        self, fetch: Callable[[int], Scored], want: int, where: Filter | None, rounds: int | None = None
    ) -> Scored:
        """Fetch ever more until `want` live matching hits are there, the index is exhausted, or rounds run out."""
        k = max(_FIRST_FETCH, want)
        while True:
            hits = fetch(k)
            with self.store.read() as connection:
                live = live_chunks(connection, [i for i, _ in hits], where)
            kept = [hit for hit in hits if hit[0] in live]
            if rounds is not None:
                rounds -= 1
            if len(kept) >= want or len(hits) < k or rounds == 0:
                return kept[:want]
            # As deep as the share that was acceptable so far calls for, and a little more.
            k *= max(2, min(_MAX_GROWTH, math.ceil(_SPARE * want / max(len(kept), 1))))

    def _hydrate(
        self,
        fused: Scored,
        cosine: dict[int, float],
        bm25: dict[int, float],
        limit: int | None,
        where: Filter | None,
        exclude: AbstractSet[int],
    ) -> list[Hit]:
        """The first `limit` live ones that are not excluded; all of them for None."""
        ranked = [(rank, i, score) for rank, (i, score) in enumerate(fused) if i not in exclude]
        step = limit or max(len(ranked), 1)
        hits: list[Hit] = []
        with self.store.read() as connection:
            for start in range(0, len(ranked), step):
                block = ranked[start : start + step]
                chunks = load_chunks(connection, [i for _, i, _ in block])
                if where is not None:
                    # The filter holds in the snapshot that the caller is shown, whatever changed since.
                    chunks = {i: chunks[i] for i in live_chunks(connection, list(chunks), where)}
                hits += [
                    Hit(chunks[i], score, cosine.get(i), bm25.get(i), rank) for rank, i, score in block if i in chunks
                ]
                if limit is not None and len(hits) >= limit:
                    break
        return hits[:limit]
