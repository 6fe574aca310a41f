"""The dense index in the collection's own directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.generations import Generations
from thresher.corpus.vectors.base import OpenIndex
from thresher.corpus.vectors.chroma import ChromaIndex
from thresher.corpus.vectors.claim import Claim, marker_of
from thresher.corpus.vectors.files import DATABASE, ChromaUnusable

IDENTITY = "local"
"""One for every way to run Chroma on the collection's own directory: no copy of the collection is ever elsewhere."""


class LocalHome:
    """An `IndexHome` of numbered directories, opened by Chroma inside this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._generations = Generations(root)

    @property
    def identity(self) -> str:
        """See `IndexHome`."""
        return IDENTITY

    def open(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        directory = self._generations.path(generation)
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory} is missing")
        if not (directory / DATABASE).exists():
            # Chroma would lay out an empty index without a word.
            raise ChromaUnusable(f"{directory / DATABASE} is missing")
        return self._opened(directory, generation)

    def left_open(self, generation: int) -> bool:
        """See `IndexHome`."""
        return marker_of(self._generations.path(generation)).exists()

    def fresh(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        self._end_users(generation)
        return self._opened(self._generations.fresh(generation), generation)

    def quarantine(self, generation: int) -> str | None:
        """See `IndexHome`."""
        self._end_users(generation)
        aside = self._generations.quarantine(generation)
        return str(aside) if aside else None

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """See `IndexHome`."""
        if self._root.is_dir():
            for marker in self._root.glob("*.open"):
                if marker.stem != str(generation) and marker.stem.isdigit():
                    with suppress(IndexUnreachable):
                        self._end_users(int(marker.stem))
        self._generations.keep_only(generation, quarantined=quarantined)

    def on_lost(self, notify: Callable[[str], None]) -> None:
        """See `IndexHome`: inside this process there is nothing to lose."""

    def close(self) -> None:
        """See `IndexHome`."""

    def _opened(self, directory: Path, generation: int) -> OpenIndex:
        return ChromaIndex(directory)

    def _end_users(self, generation: int) -> None:
        """Make sure that no child of a dead owner has a directory that is to go."""
        directory = self._generations.path(generation)
        if marker_of(directory).exists():
            Claim(directory).release(clean=True)
