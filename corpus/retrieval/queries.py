"""Vectors of recent queries: an agent asks the same thing again with another filter or limit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder

_CAPACITY = 2_048


class QueryVectors:
    """A least-recently-used cache in front of an embedder. Thread-safe."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._guard = threading.Lock()

    def __call__(self, queries: Sequence[str]) -> Vectors:
        """The vectors of queries, shape (len(queries), dimension); those not known are embedded as one batch."""
        vectors: dict[str, Vectors] = {}
        with self._guard:
            for query in queries:
                if query in self._known:
                    self._known.move_to_end(query)
                    vectors[query] = self._known[query]
        missing = [query for query in dict.fromkeys(queries) if query not in vectors]
        if missing:
            vectors.update(zip(missing, self._embedder.embed_queries(missing), strict=True))
            with self._guard:
                self._known.update((query, vectors[query]) for query in missing)
                while len(self._known) > _CAPACITY:
                    self._known.popitem(last=False)
        if not queries:
            return np.zeros((0, self._embedder.info.dimension), dtype=np.float32)
        return np.stack([vectors[query] for query in queries])
