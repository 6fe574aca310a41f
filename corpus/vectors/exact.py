"""Exact search by one matrix product: small collections, filtered sets, and while Chroma is being repaired."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import numpy as np

from thresher.corpus.documents import Vectors

_MIN_CAPACITY = 256
_ROUNDING = 1.05


class ExactIndex:
    """A `VectorIndex` in memory: 4 bytes × dimension a chunk, no approximation."""

    def __init__(self, dimension: int) -> None:
        self._rows: Vectors = np.zeros((_MIN_CAPACITY, dimension), dtype=np.float32)
        self._ids = np.zeros(_MIN_CAPACITY, dtype=np.int64)
        self._place: dict[int, int] = {}
        self._guard = threading.Lock()

    def apply(self, *, add: Sequence[int], vectors: Vectors, remove: Sequence[int]) -> None:
        """See `VectorIndex`."""
        with self._guard:
            for chunk_id in remove:
                self._remove(chunk_id)
            size = len(self._place)
            self._reserve(size + len(add))
            fresh: list[int] = []
            for i, chunk_id in enumerate(add):
                # Of equal ids the first counts.
                if self._place.setdefault(chunk_id, size + len(fresh)) == size + len(fresh):
                    fresh.append(i)
            if fresh:
                everything = len(fresh) == len(add)
                self._rows[size : size + len(fresh)] = vectors if everything else vectors[fresh]
                self._ids[size : size + len(fresh)] = add if everything else [add[i] for i in fresh]

    def reserve(self, size: int) -> None:
        """Make room for `size` vectors at once, where it is known how many will come."""
        with self._guard:
            self._reserve(size, exactly=True)

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """See `VectorIndex`."""
        with self._guard:
            size = len(self._place)
            return top_k(self._ids[:size], self._rows[:size], vector, k)

    def search_within(self, vector: Vectors, chunk_ids: Collection[int], k: int) -> list[tuple[int, float]]:
        """Like `search`, only among `chunk_ids`; unknown ones are ignored."""
        with self._guard:
            places = [self._place[i] for i in chunk_ids if i in self._place]
            return top_k(self._ids[places], self._rows[places], vector, k)

    def ids(self) -> set[int]:
        """See `VectorIndex`."""
        with self._guard:
            return set(self._place)

    def count(self) -> int:
        """See `VectorIndex`."""
        return len(self._place)

    def close(self) -> None:
        """See `VectorIndex`."""

    def _remove(self, chunk_id: int) -> None:
        place = self._place.pop(chunk_id, None)
        if place is None:
            return
        last = len(self._place)
        if place != last:
            self._rows[place] = self._rows[last]
            moved = int(self._ids[last])
            self._ids[place] = moved
            self._place[moved] = place

    def _reserve(self, size: int, *, exactly: bool = False) -> None:
        if size <= len(self._ids):
            return
        capacity = size if exactly else max(size, 2 * len(self._ids))
        rows = np.zeros((capacity, self._rows.shape[1]), dtype=np.float32)
        ids = np.zeros(capacity, dtype=np.int64)
        used = len(self._place)
        rows[:used], ids[:used] = self._rows[:used], self._ids[:used]
        self._rows, self._ids = rows, ids


def top_k(ids: np.typing.NDArray[np.int64], rows: Vectors, vector: Vectors, k: int) -> list[tuple[int, float]]:
    """The k rows most similar to `vector`: (id, dot product), best first, ties by id.

    `ids` has shape (n,), `rows` (n, dimension), `vector` (dimension,).
    """
    if k <= 0 or not len(ids):
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        scores = rows @ vector
    # No unit vector does better; a row that does was damaged on disk, and must not rank above sound ones.
    most = _ROUNDING * float(np.linalg.norm(vector))
    scores[~(np.abs(scores) <= most)] = -most
    if k < len(ids):
        # Everything at least as good as the k-th stays until the ties are ordered.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        chosen = np.flatnonzero(scores >= threshold)
        scores, ids = scores[chosen], ids[chosen]
    order = np.lexsort((ids, -scores))[:k]
    return [(int(ids[i]), float(scores[i])) for i in order]
