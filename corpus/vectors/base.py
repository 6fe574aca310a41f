"""The interfaces of the dense index: the index itself, and the place where its generations live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class IndexDamaged(Exception):
    """The generation must not be used any more: put it aside and build another from the record."""


class OpenIndex(VectorIndex, Protocol):
    """A generation that was opened and is owned by this process.

    Any of its methods may raise `IndexUnreachable`; any other exception means that the generation is damaged.
    """

    @property
    def was_unclean(self) -> bool:
        """Whether its last owner did not close it, so that it may lack what it had acknowledged."""

    def abandon(self) -> None:
        """Release files and memory without calling the index clean. Raises nothing."""


class IndexHome(Protocol):
    """Where the generations of one collection's dense index live: a directory, a server.

    Used by one thread at a time, except for `close`.
    """

    @property
    def identity(self) -> str:
        """What tells this place from any other. Kept in the record: another one means that the index is elsewhere."""

    def open(self, generation: int) -> OpenIndex:
        """Open an existing generation.

        Raises:
            IndexUnreachable: what runs the index does not answer now.
            IndexDamaged: the generation is missing or damaged.
            Exception: whatever else keeps it from being used; counts as damage.
        """

    def left_open(self, generation: int) -> bool:
        """Whether the last owner of a generation, which is not open now, did not close it. Quick."""

    def fresh(self, generation: int) -> OpenIndex:
        """An empty generation; leftovers of a build that died are removed.

        Raises:
            IndexUnreachable: as for `open`.
        """

    def quarantine(self, generation: int) -> str | None:
        """Put a generation aside so that nothing opens it again. Returns where it went, None if it was gone.

        Raises:
            IndexUnreachable: as for `open`.
        """

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """Remove every other generation, and the quarantined ones unless they are to stay.

        Raises:
            IndexUnreachable: as for `open`.
        """

    def on_lost(self, notify: Callable[[str], None]) -> None:
        """Have `notify(why)` called, from any thread, when an open index stops answering without being asked."""

    def close(self) -> None:
        """Interrupt an `open` or `fresh` that is under way; later ones raise `IndexUnreachable`."""
