"""What recent filters matched, and the vectors of it: an agent keeps a filter for many searches."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.record.documents import load_vectors, vectors_of
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.exact import top_k

FILTERS = 32
VECTOR_BYTES = 64 * 1024 * 1024
"""Memory for the vectors of matched chunks: about eight filters that match 5,000 chunks of 384 dimensions."""

_PAGE = 1_000

Key = tuple[int, int, str]


class Matched:
    """The chunks that satisfied a filter at one state of the record. Thread-safe."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        self.members = frozenset(ids)
        self._guard = threading.Lock()
        self._rows: tuple[np.typing.NDArray[np.int64], Vectors, dict[int, list[int]]] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes(self) -> int:
        """Memory that its vectors take now."""
        rows = self._rows
        return 0 if rows is None else rows[1].nbytes

    def forget_vectors(self) -> None:
        """Give their memory back; the next search reads them again."""
        self._rows = None

    def nearest(self, store: Store, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """The k nearest (chunk id, cosine similarity) of the chunks that are still live, nearest first, ties by id."""
        with self._guard:
            rows = self._rows
            if rows is None:
                with store.read() as connection:
                    rows = self._rows = _load(connection, self.ids, len(vector))
        vector_ids, matrix, chunks = rows
        # Equal vectors are scored once, so that the chunks that share one tie exactly.
        found = top_k(vector_ids, matrix, vector, k)
        hits = [(chunk, similarity) for vector_id, similarity in found for chunk in chunks[vector_id]]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


class ResolvedFilters:
    """The most recently used filters, and vectors for as many of them as the memory allows. Thread-safe."""

    def __init__(self, *, filters: int = FILTERS, vector_bytes: int = VECTOR_BYTES) -> None:
        self._filters = filters
        self._vector_bytes = vector_bytes
        self._known: OrderedDict[Key, Matched | None] = OrderedDict()
        self._guard = threading.Lock()

    def __call__(self, key: Key, resolve: Callable[[], Matched | None]) -> Matched | None:
        """What is known under `key`, else what `resolve` finds; None stands for too many to search one by one."""
        with self._guard:
            if key in self._known:
                self._known.move_to_end(key)
                self._trim()
                return self._known[key]
        matched = resolve()
        with self._guard:
            # Another thread may have been first: its object holds the vectors that others wait for.
            matched = self._known.setdefault(key, matched)
            self._known.move_to_end(key)
            self._trim()
        return matched

    def _trim(self) -> None:
        while len(self._known) > self._filters:
            self._known.popitem(last=False)
        left = self._vector_bytes
        for matched in reversed(self._known.values()):
            if matched is not None and (left := left - matched.bytes) < 0:
                matched.forget_vectors()


def _load(
    connection: sqlite3.Connection, chunk_ids: Sequence[int], dimension: int
) -> tuple[np.typing.NDArray[np.int64], Vectors, dict[int, list[int]]]:
    """Vector ids, their rows, and the chunks that have each."""
    chunks: dict[int, list[int]] = {}
    for vector_id, chunk_id in vectors_of(connection, chunk_ids):
        chunks.setdefault(vector_id, []).append(chunk_id)
    wanted = sorted(chunks)
    matrix = np.empty((len(wanted), dimension), dtype=np.float32)
    for start in range(0, len(wanted), _PAGE):
        _, matrix[start : start + _PAGE] = load_vectors(connection, wanted[start : start + _PAGE], dimension)
    return np.array(wanted, dtype=np.int64), matrix, chunks
