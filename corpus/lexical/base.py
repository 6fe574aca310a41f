"""The interface of a lexical index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from thresher.corpus.documents import Vectors


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

    def holds_above(self, chunk_id: int) -> bool:
        """Whether it holds a chunk with a larger id, one of the next few hundred at least."""

    def count(self) -> int:
        """How many chunks the index holds."""

    def close(self) -> None:
        """Release files and threads."""


@runtime_checkable
class BothRankings(Protocol):
    """A lexical index that holds the chunks' vectors as well."""

    def rankings(
        self, query: str, vector: Vectors, k: int
    ) -> tuple[list[tuple[int, float]], list[tuple[int, float]]] | None:
        """(dense, BM25) rankings of chunks from one request, each as its own index gives it; None if it cannot."""


class LexicalHome(Protocol):
    """Where the generations of one collection's lexical index live: a directory, a server.

    Used by one thread at a time, except for `close`. `IndexUnreachable` from any method, or from an index, means that
    what runs the index does not answer now; the generation may be in order.
    """

    @property
    def identity(self) -> str:
        """What tells this place from any other. Kept in the record: another one means that the index is elsewhere."""

    def open(self, generation: int) -> LexicalIndex:
        """Open an existing generation.

        Raises:
            IndexUnreachable: see above.
            Exception: whatever keeps it from being used; another is then built from the record.
        """

    def fresh(self, generation: int) -> LexicalIndex:
        """An empty generation; leftovers of a build that died are removed."""

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """Remove every other generation, and what was put aside unless it is to stay."""

    def close(self) -> None:
        """Release what the home holds, after its indexes were closed."""
