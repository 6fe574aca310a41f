"""Hybrid search: dense and BM25 candidates, fused by rank.

Every candidate is checked against the record before it is ranked, so an index that lags can cost a place in the list
but never show a deleted passage.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from thresher.corpus.documents import Hit, Vectors
from thresher.corpus.filters import Filter
from thresher.corpus.fusion import reciprocal_rank_fusion
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.record.documents import live_chunks, load_chunks, matching_chunks
from thresher.corpus.record.oplog import last_seq
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.managed import ManagedDense

Ranking = list[tuple[int, float]]

FILTER_EXACT = 5_000
"""Filters that match at most this many chunks can be searched exactly, inside the matching set."""

ALWAYS_EXACT = 1_000
"""Filters that match at most this many chunks are always searched exactly."""

_SELECTIVE = 5  # a filter that keeps under one chunk in five: over-fetching would throw most of it away

_FIRST_FETCH = 100
_MAX_GROWTH = 16
_SPARE = 1.5
_RESOLVED = 32
_DENSE_ROUNDS = 3


_Key = tuple[int, int, str]


class _Resolved:
    """What recent filters matched: an agent keeps a filter for many searches. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, list[int] | None] = OrderedDict()
        self._guard = threading.Lock()

    def __call__(self, key: _Key, resolve: Callable[[], list[int] | None]) -> list[int] | None:
        with self._guard:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        ids = resolve()
        with self._guard:
            self._known[key] = ids
            while len(self._known) > _RESOLVED:
                self._known.popitem(last=False)
        return ids


def _at_most(most: int, ids: list[int]) -> list[int] | None:
    return ids if len(ids) <= most else None


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """The search of one collection."""

    store: Store
    dense: ManagedDense
    lexical: ManagedLexical
    filter_exact: int = FILTER_EXACT
    always_exact: int = ALWAYS_EXACT
    _resolved: _Resolved = field(default_factory=_Resolved)

    def __call__(
        self,
        query: str,
        vector: Vectors,
        *,
        limit: int,
        candidates: int,
        where: Filter | None,
        exclude: AbstractSet[int],
    ) -> list[Hit]:
        """The `limit` best live chunks that satisfy the filter and are not excluded, best first.

        Excluded chunks keep their place in the ranking, so that `Hit.rank` says how deep a hit really lies.
        """
        want = max(candidates, limit) + len(exclude)
        within = self._resolve(where)
        if within is not None:
            dense = self.dense.search_within(vector, within, want)
            lexical = self.lexical.search(query, want, within=within)
        else:
            dense = self._dense(vector, want, where)
            lexical = self._grow(lambda k: self.lexical.search(query, k), want, where)
        return self._hydrate(dense, lexical, limit, where, exclude)

    def _resolve(self, where: Filter | None) -> list[int] | None:
        """The matching chunk ids if it is right and cheap to search just them."""
        if where is None:
            return None
        most = max(min(self.filter_exact, self.dense.chunks // _SELECTIVE), self.always_exact)
        with self.store.read() as connection:
            # True and 1 are equal in Python but not in a filter, hence the text as key.
            key = (last_seq(connection), most, repr(where))
            return self._resolved(key, lambda: _at_most(most, matching_chunks(connection, where, most + 1)))

    def _dense(self, vector: Vectors, want: int, where: Filter | None) -> Ranking:
        rounds = _DENSE_ROUNDS if self.dense.backend[0] == "chroma" else None
        found = self._grow(lambda k: self.dense.search(vector, k), want, where, rounds)
        if len(found) >= want or where is None or rounds is None:
            return found
        # HNSW degrades with depth; past a few rounds it is cheaper, and certain, to score what the filter matches.
        with self.store.read() as connection:
            allowed = matching_chunks(connection, where)
        return self.dense.search_within(vector, allowed, want)

    def _grow(
        self, fetch: Callable[[int], Ranking], want: int, where: Filter | None, rounds: int | None = None
    ) -> Ranking:
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
        self, dense: Ranking, lexical: Ranking, limit: int, where: Filter | None, exclude: AbstractSet[int]
    ) -> list[Hit]:
        cosine, bm25 = dict(dense), dict(lexical)
        fused = reciprocal_rank_fusion([list(cosine), list(bm25)])
        ranked = [(rank, i, score) for rank, (i, score) in enumerate(fused) if i not in exclude]
        hits: list[Hit] = []
        with self.store.read() as connection:
            for start in range(0, len(ranked), limit):
                block = ranked[start : start + limit]
                chunks = load_chunks(connection, [i for _, i, _ in block])
                if where is not None:
                    # The filter holds in the snapshot that the caller is shown, whatever changed since.
                    chunks = {i: chunks[i] for i in live_chunks(connection, list(chunks), where)}
                hits += [
                    Hit(chunks[i], score, cosine.get(i), bm25.get(i), rank) for rank, i, score in block if i in chunks
                ]
                if len(hits) >= limit:
                    break
        return hits[:limit]
