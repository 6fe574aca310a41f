"""The passages collection: a `LexicalIndex` on a distributed Chroma, keyed by chunk id."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import InvalidQuery
from thresher.corpus.lexical.analyzer import BIGRAMS, STEMMED, split_scripts
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.terms import make_analyzer, query_terms
from thresher.corpus.remote.database import Record, RemoteCollection, lightened
from thresher.corpus.remote.errors import RemoteRefused
from thresher.corpus.remote.sparse import Lengths, Sparse, dimension, measure, passage_vector, query_vector
from thresher.corpus.retrieval.fusion import RRF_K

SPARSE_KEY = "bm25"

Ranking = list[tuple[int, float]]
VectorsOf = Callable[[Sequence[int]], Mapping[int, Vectors]]
"""Chunk id → its vector, for those that have one."""

# Chroma fuses ranks from 0 and ours count from 1.
_SERVER_K = RRF_K + 1
# What a ranking adds for records that it lacks. Chroma's own way, without this, is to drop them altogether.
_MISSING_RANK = 1e6
_STAND_IN_DIMENSION = 8
_WITHIN = 1_000
# A score below this is a record that shares no term with the query but was read from the server's log with the others.
_NOTHING = 1e-6


class RemotePassages:
    """A generation of a lexical index. Safe for many readers and one writer at a time."""

    def __init__(
        self,
        collection: RemoteCollection | None,
        create: Callable[[Lengths], RemoteCollection],
        vectors_of: VectorsOf | None = None,
    ) -> None:
        """Use `collection`; if there is none yet, the first passages make one, for they tell the average lengths.

        Args:
            create: makes the collection and notes the lengths in it.
            vectors_of: where chunks' vectors come from; without it, `rankings` and `fused` are not to be had.
        """
        self._create = create
        self._vectors_of = vectors_of
        self._analyzer = make_analyzer()
        self._frequencies: dict[str, int] = {}
        self._made: tuple[RemoteCollection, Lengths] | None = None
        if collection is not None:
            notes = collection.notes
            usual = asdict(Lengths())
            self._made = collection, Lengths(**{name: float(notes.get(name, usual[name])) for name in usual})

    def apply(self, *, add: Sequence[Passage], remove: Sequence[int]) -> None:
        """See `LexicalIndex`."""
        self._frequencies = {}
        added = {passage.chunk_id: passage for passage in add}
        if self._made is None:
            if not add:
                return
            lengths = measure(self._analyzer, add)
            self._made = self._create(lengths), lengths
        collection, lengths = self._made
        collection.delete([str(i) for i in dict.fromkeys(remove) if i not in added])
        if added:
            vectors = self._vectors(list(added))
            collection.upsert([self._record(collection, lengths, passage, vectors[i]) for i, passage in added.items()])

    def commit(self) -> None:
        """See `LexicalIndex`. A server's answer to a write is its commit, and reads see its log."""

    def search(self, query: str, k: int, *, within: Collection[int] | None = None) -> Ranking:
        """See `LexicalIndex`. At most as many as one request can ask for (3,000).

        Which of equal scores stand at the very end of the list is the server's choice.
        """
        sparse = query_vector(self._analyzer, query)
        if self._made is None or not sparse[0] or k <= 0 or (within is not None and not within):
            return []
        collection, _ = self._made
        deepest = collection.quotas.results * collection.quotas.searches
        k = min(k, deepest)
        if within is None:
            return self._ranked(collection, sparse, k)
        ids = [str(i) for i in dict.fromkeys(within)]
        groups = [ids[start : start + _WITHIN] for start in range(0, len(ids), _WITHIN)]
        searches = [self._bm25(sparse, k, start, ids) for ids in groups for start in self._pages(min(k, len(ids)))]
        try:
            return _merged(collection.search(searches), k)
        except RemoteRefused as error:
            if not error.over_quota:
                raise
        # A tenant that may not name so many ids ranks everything, as deep as may be, and keeps what is wanted.
        allowed = set(within)
        return [hit for hit in self._ranked(collection, sparse, deepest) if hit[0] in allowed][:k]

    def analyze(self, text: str) -> list[str]:
        """See `LexicalIndex`."""
        return [term for _, term in query_terms(self._analyzer, text)]

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """See `LexicalIndex`.

        The server keeps these counts and has no call for them, but its score for a term's best passage tells: the
        passage's own weight is known, so the rarity is, and so the count.
        """
        unknown = [term for term in dict.fromkeys(terms) if term not in self._frequencies]
        if unknown and self._made is not None:
            self._frequencies.update(self._learned(self._made[0], unknown))
        return [self._frequencies.get(term, 0) for term in terms]

    def ids(self) -> set[int]:
        """See `LexicalIndex`."""
        return {int(i) for i in self._made[0].ids()} if self._made else set()

    def holds_above(self, chunk_id: int) -> bool:
        """See `LexicalIndex`."""
        if self._made is None:
            return False
        following = range(chunk_id + 1, chunk_id + 1 + self._made[0].quotas.records)
        return self._made[0].holds_any([str(i) for i in following])

    def count(self) -> int:
        """See `LexicalIndex`."""
        return self._made[0].count() if self._made else 0

    def close(self) -> None:
        """See `LexicalIndex`. The connection belongs to the home."""

    def rankings(self, query: str, vector: Vectors, k: int) -> tuple[Ranking, Ranking] | None:
        """(dense, BM25) rankings of chunks from one request; None if the vectors for it or the quota are lacking."""
        sparse = query_vector(self._analyzer, query)
        if self._made is None or self._vectors_of is None or k <= 0 or not sparse[0]:
            return None
        collection, pages = self._made[0], self._pages(k)
        dense = [self._search(_dense(vector, k), k, start) for start in pages]
        try:
            found = collection.search([*dense, *(self._bm25(sparse, k, start) for start in pages)])
        except RemoteRefused as error:
            if not error.over_quota:
                raise
            return None
        return _merged(found[: len(pages)], k, digits=6), _merged(found[len(pages) :], k)

    def fused(
        self, query: str, vector: Vectors, k: int, *, candidates: int = 50, pattern: str | None = None
    ) -> list[int] | None:
        """Chunks by reciprocal rank fusion on the server, optionally only those whose text matches a pattern.

        The same fusion as our own (k=60, equal weights), but without the scores of the rankings in it, and with a flaw
        that only a client can mend: what the server still has in its log takes a BM25 rank even if it shares no term
        with the query. The engine therefore asks for both rankings and fuses them here, which costs no more requests.
        None if the collection lacks the vectors for it.
        """
        from chromadb import K, Knn, Rrf

        sparse = query_vector(self._analyzer, query)
        if self._made is None or self._vectors_of is None or k <= 0:
            return None
        ranks: list[Any] = [_dense(vector, candidates, return_rank=True, default=_MISSING_RANK)]
        if sparse[0]:
            ranks.append(
                Knn(query=_sparse(sparse), key=SPARSE_KEY, limit=candidates, return_rank=True, default=_MISSING_RANK)
            )
        where = K.DOCUMENT.regex(self._checked(pattern)) if pattern is not None else None
        search = self._search(Rrf(ranks=ranks, k=_SERVER_K), min(k, self._made[0].quotas.results), 0, where=where)
        (hits,) = self._made[0].search([search])
        return [int(identifier) for identifier, _, _ in hits]

    def matching(self, pattern: str, limit: int) -> list[int]:
        """Chunks whose stored text a regular expression matches, at most `limit` and a page of the quota (300).

        grep is not served by this: the record's trigram index answers it on this machine, in a few milliseconds, with
        RE2's exact meaning and over whole texts, where the server has its own dialect and texts cut at 16 KB.

        Raises:
            InvalidQuery: the pattern is longer than the server takes.
            RemoteRefused: the server cannot read the pattern.
        """
        if self._made is None or limit <= 0:
            return []
        return sorted(int(i) for i in self._made[0].matching({"$regex": self._checked(pattern)}, limit))

    def _checked(self, pattern: str) -> str:
        most = self._made[0].quotas.pattern_bytes if self._made else 0
        if not pattern or len(pattern.encode()) > most:
            raise InvalidQuery(
                f"a pattern for the Chroma server has 1 to {most} bytes, this one {len(pattern.encode())}"
            )
        return pattern

    def _record(self, collection: RemoteCollection, lengths: Lengths, passage: Passage, vector: Vectors) -> Record:
        quotas = collection.quotas
        text = passage.text.encode()[: quotas.document_bytes].decode(errors="ignore")
        sparse = lightened(passage_vector(self._analyzer, passage, lengths), quotas.sparse_terms)
        return Record(str(passage.chunk_id), vector, text or None, sparse)

    def _vectors(self, chunk_ids: list[int]) -> dict[int, Vectors]:
        known = dict(self._vectors_of(chunk_ids)) if self._vectors_of else {}
        dimension_ = len(next(iter(known.values()))) if known else _STAND_IN_DIMENSION
        # Every record must have an embedding. Equal ones would crowd one cell of the server's index, so each chunk
        # without gets a direction of its own.
        return {i: known[i] if i in known else _direction(i, dimension_) for i in chunk_ids}

    def _ranked(self, collection: RemoteCollection, sparse: Sparse, k: int) -> Ranking:
        try:
            return _merged(collection.search([self._bm25(sparse, k, start) for start in self._pages(k)]), k)
        except RemoteRefused as error:
            if not error.over_quota or k <= collection.quotas.results:
                raise
            return self._ranked(collection, sparse, collection.quotas.results)

    def _pages(self, k: int) -> list[int]:
        assert self._made is not None
        return list(range(0, k, self._made[0].quotas.results))

    def _bm25(self, sparse: Sparse, k: int, start: int, ids: list[str] | None = None) -> Any:
        from chromadb import K, Knn

        where = K.ID.is_in(ids) if ids is not None else None
        return self._search(Knn(query=_sparse(sparse), key=SPARSE_KEY, limit=k), k, start, where=where)

    def _search(self, rank: Any, k: int, start: int, *, where: Any = None) -> Any:
        from chromadb import K, Search

        assert self._made is not None
        page = min(self._made[0].quotas.results, k - start)
        return Search(where=where, rank=rank).limit(page, offset=start).select(K.SCORE)

    def _learned(self, collection: RemoteCollection, terms: list[str]) -> dict[str, int]:
        from chromadb import K, Knn, Search

        places = [dimension(BIGRAMS if split_scripts(term)[1] else STEMMED, term) for term in terms]
        searches = [
            Search(rank=Knn(query=_sparse(([place], [1.0])), key=SPARSE_KEY, limit=1), limit=1).select(
                K.SCORE, SPARSE_KEY
            )
            for place in places
        ]
        total = collection.count()
        learned = {}
        for term, place, hits in zip(terms, places, collection.search(searches), strict=True):
            rarity = 0.0
            if hits and (held := hits[0][2].get(SPARSE_KEY)) is not None and place in held.indices:
                rarity = (1.0 - hits[0][1]) / held.values[held.indices.index(place)]
            # rarity = ln(1 + (N − n + 0.5) / (n + 0.5)), solved for n.
            learned[term] = max(1, round((total + 1) / math.exp(rarity) - 0.5)) if rarity > _NOTHING else 0
        return learned


def _merged(found: list[list[tuple[str, float, Mapping[str, Any]]]], k: int, *, digits: int = 5) -> Ranking:
    """The k best of the pages of a ranking. Chroma's score is 1 − similarity, and beyond these digits noise."""
    scores = {int(i): round(1.0 - score, digits) for hits in found for i, score, _ in hits}
    kept = scores.items() if digits == 6 else ((i, score) for i, score in scores.items() if score > _NOTHING)
    return sorted(kept, key=lambda hit: (-hit[1], hit[0]))[:k]


def _dense(vector: Vectors, limit: int, **options: Any) -> Any:
    from chromadb import Knn

    return Knn(query=np.asarray(vector, dtype=np.float32).tolist(), limit=limit, **options)


def _sparse(vector: Sparse) -> Any:
    from chromadb.base_types import SparseVector

    return SparseVector(*vector)


def _direction(chunk_id: int, dimension_: int) -> Vectors:
    row = np.random.default_rng(chunk_id).normal(size=dimension_).astype(np.float32)
    return row / np.linalg.norm(row)
