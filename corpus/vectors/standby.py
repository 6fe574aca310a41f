"""Exact search kept level with the record: loaded when it is first needed, given back when it is not."""

from __future__ import annotations

import threading

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.record.oplog import last_seq, pending_since
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.exact import ExactIndex
from thresher.corpus.vectors.following import Follower


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

    def release(self) -> None:
        """Give its memory back; a search that is under way keeps what it has."""
        with self._loading:
            self._index, self._seq = ExactIndex(self._dimension), None
