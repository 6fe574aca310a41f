"""How much one file may cost: guards that its members, its members' members and its pictures share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from thresher.corpus.errors import LoaderError

DEEPEST = 3
MOST_MEMBERS = 20_000
MOST_EXPANDED = 1024**3


class LimitReached(LoaderError):
    """A guard stopped the whole file, not one member of it."""


@dataclass(slots=True)
class Limits:
    """What is left for one file.

    Attributes:
        deadline: `time.monotonic()` at which optional work (OCR of one more page) is left out, or None.
        depth: containers that are open now: an archive in a mail in an archive is 3.
    """

    ocr: bool = False
    deadline: float | None = None
    depth: int = 0
    members: int = MOST_MEMBERS
    expanded: int = MOST_EXPANDED

    @property
    def late(self) -> bool:
        """Whether optional work should stop."""
        return self.deadline is not None and time.monotonic() > self.deadline

    @contextmanager
    def inside(self) -> Iterator[None]:
        """While a container is open."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def spend(self, size: int) -> None:
        """Count a member of `size` bytes, before it is expanded.

        Raises:
            LimitReached: that is too much in all.
        """
        self.members -= 1
        self.expanded -= size
        if self.members < 0:
            raise LimitReached(f"the file holds more than {MOST_MEMBERS:,} members; unpack it and ingest the folder")
        if self.expanded < 0:
            raise LimitReached(
                f"the file expands to more than {MOST_EXPANDED // 2**20:,} MB; unpack it and ingest the folder"
            )
