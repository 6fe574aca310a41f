"""Who parses and embeds for an ingestion: this process, or a cluster behind the same interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from thresher.corpus.chunker import Chunker
from thresher.corpus.cores import usable_cores
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.ingestion.parsing import LocalParsing, Parsing
from thresher.corpus.loaders import ParserProcess

MOST_PARSERS = 8


class Workers(Protocol):
    """What an ingestion needs besides the collection."""

    @property
    def parsing(self) -> Parsing:
        """Turns contents into chunked documents."""

    @property
    def lanes(self) -> int:
        """How many batches may be embedded at once."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages, shape (len(texts), dimension). Called from `lanes` threads.

        Raises:
            EmbedderError: there are none.
        """

    def close(self) -> None:
        """End what was started for the run. What another thread still waits for fails there."""


class LocalWorkers:
    """This process, with child processes for the formats that need one.

    Args:
        parser: the one to use; None for as many as suit the machine.
    """

    lanes = 1

    def __init__(self, embedder: Embedder, chunker: Chunker, parser: ParserProcess | None) -> None:
        self._own = () if parser is not None else tuple(ParserProcess() for _ in range(_parsers()))
        self._embedder = embedder
        self._parsing = LocalParsing((parser,) if parser is not None else self._own, chunker)

    @property
    def parsing(self) -> Parsing:
        """See `Workers`."""
        return self._parsing

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Workers`."""
        return self._embedder.embed_passages(texts)

    def close(self) -> None:
        """See `Workers`."""
        self._parsing.close()
        for parser in self._own:
            parser.interrupt()
            parser.close()


def _parsers() -> int:
    """A quarter of the cores, the others are for embedding; their children are started when they are needed."""
    return max(1, min(MOST_PARSERS, usable_cores() // 4))
