"""Exact search kept level with the record: loaded when it is first needed, given back when it is not."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.record.documents import load_vectors
from thresher.corpus.record.oplog import last_seq, pending_since
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.exact import ExactIndex, top_k
from thresher.corpus.vectors.following import PAGE, Follower


class Standby:
    """An `ExactIndex` of everything that is live, brought up to date by every use. Thread-safe."""

    def __init__(self, store: Store, follower: Follower, dimension: int) -> None:
        self._store = store
        self._follower = follower
        self._dimension = dimension
        self._index = ExactIndex(dimension)
        self._seq: int | None = None
        self._loading = threading.Lock()

    def level(self) -> ExactIndex:
        """The index, level with the record."""
        with self._loading, self._store.read() as connection:
            if self._seq is None:
                seq = last_seq(connection)
                self._index.reserve(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])
                for ids, rows in self._follower.pages(connection, 0):
                    self._index.apply(add=ids, vectors=rows, remove=[])
                self._seq = seq
            elif pending := pending_since(connection, "vector", self._seq):
                nothing: Vectors = np.zeros((0, self._dimension), dtype=np.float32)
                self._index.apply(add=[], vectors=nothing, remove=pending.removed)
                for ids, rows in self._follower.pages(connection, pending.first):
                    self._index.apply(add=ids, vectors=rows, remove=[])
                self._seq = pending.seq
            return self._index

    def search_stored(self, vector: Vectors, vector_ids: Sequence[int], k: int) -> list[tuple[int, float]]:
        """The k nearest (id, cosine similarity) of these, read from the record: for few of many, none is kept."""
        best: list[tuple[int, float]] = []
        for start in range(0, len(vector_ids), PAGE):
            with self._store.read() as connection:
                ids, rows = load_vectors(connection, vector_ids[start : start + PAGE], self._dimension)
            best += top_k(np.array(ids, dtype=np.int64), rows, vector, k)
        return sorted(best, key=lambda hit: (-hit[1], hit[0]))[:k]

    def release(self) -> None:
        """Give its memory back; a search that is under way keeps what it has."""
        with self._loading:
            self._index, self._seq = ExactIndex(self._dimension), None
