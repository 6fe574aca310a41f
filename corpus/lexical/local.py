"""The lexical index in the collection's own directory."""

from __future__ import annotations

from pathlib import Path

from thresher.corpus.generations import Generations
from thresher.corpus.lexical.base import LexicalIndex
from thresher.corpus.lexical.tantivy_index import TantivyIndex

IDENTITY = "local"


class LocalLexicalHome:
    """A `LexicalHome` of numbered tantivy directories."""

    def __init__(self, root: Path) -> None:
        self._generations = Generations(root)

    @property
    def identity(self) -> str:
        """See `LexicalHome`."""
        return IDENTITY

    def open(self, generation: int) -> LexicalIndex:
        """See `LexicalHome`."""
        path = self._generations.path(generation)
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is missing")
        return TantivyIndex(path)

    def fresh(self, generation: int) -> LexicalIndex:
        """See `LexicalHome`."""
        return TantivyIndex(self._generations.fresh(generation))

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """See `LexicalHome`."""
        self._generations.keep_only(generation, quarantined=quarantined)

    def close(self) -> None:
        """See `LexicalHome`."""
