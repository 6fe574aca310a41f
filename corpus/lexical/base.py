"""The interface of a lexical index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class Passage(NamedTuple):
    """What a lexical index is given for a chunk."""

    chunk_id: int
    title: str
    text: str


class LexicalIndex(Protocol):
    """Ranks chunks by BM25. Safe for many readers and one writer at a time."""

    def apply(self, *, add: Sequence[Passage], remove: Sequence[int]) -> None:
        """Remove ids (unknown ones are ignored), then add passages. Visible and durable after `commit`."""

    def commit(self) -> None:
        """Make everything applied so far durable and visible to `search`."""

    def search(self, query: str, k: int, *, within: Collection[int] | None = None) -> list[tuple[int, float]]:
        """The k best (chunk id, BM25 score), best first, ties by id; optionally only among `within`."""

    def analyze(self, text: str) -> list[str]:
        """The terms that a text is searched by, each once, in order."""

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """In how many chunks each term occurs; terms as `analyze` gives them."""

    def ids(self) -> set[int]:
        """Every chunk id the index holds."""

    def count(self) -> int:
        """How many chunks the index holds."""

    def close(self) -> None:
        """Release files and threads."""
