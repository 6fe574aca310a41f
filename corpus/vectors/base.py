"""The interface of a vector index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from thresher.corpus.documents import Vectors


class VectorIndex(Protocol):
    """Ranks chunks by cosine similarity. Safe for many readers and one writer at a time.

    Chunk ids are immutable: an id always stands for the same vector, so adding a known id again changes nothing.
    """

    def apply(self, *, add: Sequence[int], vectors: Vectors, remove: Sequence[int]) -> None:
        """Remove ids (unknown ones are ignored), then add ids with unit vectors of shape (len(add), dimension)."""

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """The k nearest (chunk id, cosine similarity), nearest first, ties by id; `vector` has shape (dimension,)."""

    def ids(self) -> set[int]:
        """Every chunk id the index holds."""

    def count(self) -> int:
        """How many chunks the index holds."""

    def close(self) -> None:
        """Release files and memory."""
