"""The vectors collection: a `VectorIndex` on a distributed Chroma, keyed by vector id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thresher.corpus.documents import Vectors
from thresher.corpus.remote.database import Record, RemoteCollection


class RemoteVectors:
    """A generation of a dense index. Embeddings only: no text leaves this machine for it."""

    was_unclean = False
    """A server keeps what it acknowledged; there is no file that an unclean end could tear."""

    def __init__(self, collection: RemoteCollection, *, search_api: Callable[[], bool]) -> None:
        """`search_api`: whether the server has it; asked once a ranking deeper than one page is wanted."""
        self._collection = collection
        self._search_api = search_api

    def apply(self, *, add: Sequence[int], vectors: Vectors, remove: Sequence[int]) -> None:
        """See `VectorIndex`."""
        self._collection.delete([str(i) for i in dict.fromkeys(remove)])
        # Of an id that is given twice the first counts, and one that the server has keeps what it has.
        first = {chunk_id: row for row, chunk_id in reversed(list(enumerate(add)))}
        self._collection.add([Record(str(chunk_id), vectors[first[chunk_id]]) for chunk_id in dict.fromkeys(add)])

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """See `VectorIndex`. Without the Search API no more than the server's quota allows, if it has one."""
        if k <= 0:
            return []
        if k <= self._collection.quotas.results or not self._search_api():
            found = self._collection.query(vector, k)
        else:
            found = self._deep(vector, k)
        # Beyond six digits float32 distances are noise; equal vectors must tie.
        hits = [(int(identifier), round(1.0 - distance, 6)) for identifier, distance in found]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def ids(self) -> set[int]:
        """See `VectorIndex`."""
        return {int(identifier) for identifier in self._collection.ids()}

    def count(self) -> int:
        """See `VectorIndex`."""
        return self._collection.count()

    def close(self) -> None:
        """See `VectorIndex`. The connection belongs to the home."""

    def abandon(self) -> None:
        """See `OpenIndex`."""

    def _deep(self, vector: Vectors, k: int) -> list[tuple[str, float]]:
        from chromadb import K, Knn, Search

        page = self._collection.quotas.results
        rank = Knn(query=vector.tolist(), limit=k)
        searches = [
            Search(rank=rank).limit(min(page, k - start), offset=start).select(K.SCORE) for start in range(0, k, page)
        ]
        # Pages are cut from separate rankings, which a write in between may shift: a repeated hit counts once.
        return list({i: score for hits in self._collection.search(searches) for i, score, _ in hits}.items())
