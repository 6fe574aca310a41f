"""A Chroma collection as a `VectorIndex`: what is the same in this process and over HTTP.

What experience with the local engine dictates: embeddings only, ids as text, at most 5,461 rows a call, and no id that
it has seen (adding one is slow, 12 ms against 1 ms), so known ids are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.corpus.documents import Vectors

EF_SEARCH = 200
CONFIGURATION = {"hnsw": {"space": "cosine", "ef_search": EF_SEARCH, "ef_construction": EF_SEARCH, "max_neighbors": 16}}

BATCH = 2_000
_BATCH_FLOATS = 2_000_000

TOLERATED_MISSES = 0.1
"""Share of sampled vectors that may fail to find themselves before an index counts as damaged."""

FOUND_WITHIN = 1e-3
"""A vector found itself if something is this near: another may be equal up to rounding, so the id does not count."""


class ChromaRows:
    """Changes and queries of a Chroma collection."""

    def __init__(self, collection: Any, *, max_batch: int = BATCH) -> None:
        """`collection` is Chroma's own or a `ServerCollection`; `max_batch` is what it takes in a call."""
        self._collection = collection
        self._max_batch = min(BATCH, max_batch)

    def apply(self, *, add: Sequence[int], vectors: Vectors, remove: Sequence[int]) -> None:
        """See `VectorIndex`."""
        for start in range(0, len(remove), self._max_batch):
            # Deleting an id that is not there only logs, but deletes of known ids need not be mixed with them.
            known = self._known(remove[start : start + self._max_batch])
            if known:
                self._collection.delete(ids=known)
        size = self._batch(vectors)
        for start in range(0, len(add), size):
            batch = add[start : start + size]
            known_ids = set(self._known(batch))
            # The first of equal ids counts, as everywhere.
            rows = [i for chunk_id, i in _first_places(batch).items() if str(chunk_id) not in known_ids]
            if rows:
                self._collection.add(ids=[str(batch[i]) for i in rows], embeddings=vectors[start : start + size][rows])

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """See `VectorIndex`."""
        if k <= 0:
            return []
        answer = self._collection.query(query_embeddings=[vector], n_results=k, include=["distances"])
        # Beyond six digits float32 distances are noise; equal vectors must tie.
        hits = [
            (int(chunk_id), round(1.0 - float(distance), 6))
            for chunk_id, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
        ]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def ids(self) -> set[int]:
        """See `VectorIndex`."""
        return {int(i) for i in self._collection.get(include=[])["ids"]}

    def count(self) -> int:
        """See `VectorIndex`."""
        return int(self._collection.count())

    def find_themselves(self, sample: int) -> tuple[int, int, int]:
        """Look for a sample of the vectors by themselves: (how many the index has, how many were tried, found)."""
        count = self.count()
        ids = sorted(self._collection.get(include=[])["ids"], key=int)
        if not ids:
            return count, 0, 0
        places = np.unique(np.linspace(0, len(ids) - 1, min(sample, len(ids))).astype(int))
        rows = self._collection.get(ids=[ids[i] for i in places], include=["embeddings"])
        answer = self._collection.query(query_embeddings=rows["embeddings"], n_results=1, include=["distances"])
        found = sum(1 for distances in answer["distances"] if distances and distances[0] < FOUND_WITHIN)
        return count, len(places), found

    def _batch(self, vectors: Vectors) -> int:
        # Servers refuse bodies of more than 40 MB.
        dimension = vectors.shape[1] if vectors.ndim == 2 else 1
        return max(1, min(self._max_batch, _BATCH_FLOATS // max(dimension, 1)))

    def _known(self, chunk_ids: Sequence[int]) -> list[str]:
        wanted = [str(i) for i in dict.fromkeys(chunk_ids)]
        found: list[str] = self._collection.get(ids=wanted, include=[])["ids"]
        return found


def _first_places(batch: Sequence[int]) -> dict[int, int]:
    places: dict[int, int] = {}
    for i, chunk_id in enumerate(batch):
        places.setdefault(chunk_id, i)
    return places
