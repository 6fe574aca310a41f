"""From the bytes of a source to chunked documents: here, or somewhere else behind the same interface."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from thresher.corpus.chunker import Chunker
from thresher.corpus.ingestion.preparing import Chunked, chunk_documents
from thresher.corpus.loaders import ParserProcess, load_bytes, load_file
from thresher.corpus.loaders.base import BadRecord
from thresher.corpus.loaders.formats import ISOLATED, Format

IN_FLIGHT_BYTES = 256 * 1024 * 1024
"""Bytes of files that are being parsed ahead; one larger file may go by itself."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a source holds and how it is called.

    Attributes:
        name: decides the format, with `kind` if that is given.
        uri: the address of its documents; parts of it get a fragment.
        data: its bytes, or None if it is to be read from `path` as a stream.
    """

    source_id: str
    name: str
    uri: str
    kind: Format | None
    data: bytes | None
    path: Path | None = None


class Parsing(Protocol):
    """Turns contents into chunked documents."""

    def may_start(self, waiting: int) -> bool:
        """Whether to start another content although `waiting` ones were started and not read to their end."""

    def start(self, content: Content) -> Iterator[Chunked | BadRecord]:
        """The documents of one content, in order. Work may begin at once or when the first is asked for.

        Raises, while iterated:
            NoText, Unsupported, LoaderError: as `load_bytes` does.
        """

    def refusal(self, name: str) -> str | None:
        """See `ParserProcess.refusal`."""

    def may_read_more(self, reason: str | None) -> bool:
        """See `ParserProcess.may_read_more`."""


class LocalParsing:
    """Parses in this process, and in child processes where a format calls for it: as many at once as there are parsers.

    Args:
        parsers: at least one. With several, files are opened that many ahead, as long as they are not too large in all.
    """

    def __init__(self, parsers: Sequence[ParserProcess], chunker: Chunker) -> None:
        self._parsers = parsers
        self._chunker = chunker
        self._free: queue.SimpleQueue[ParserProcess] = queue.SimpleQueue()
        for parser in parsers:
            self._free.put(parser)
        self._pool = ThreadPoolExecutor(len(parsers), "thresher-parse") if len(parsers) > 1 else None
        self._bytes = 0

    def may_start(self, waiting: int) -> bool:
        """See `Parsing`."""
        return self._pool is not None and waiting <= len(self._parsers) and self._bytes < IN_FLIGHT_BYTES

    def start(self, content: Content) -> Iterator[Chunked | BadRecord]:
        """See `Parsing`. What needs a child process is begun at once if there are several."""
        if self._pool is None or content.data is None or content.kind not in ISOLATED:
            return read_content(content, self._parsers[0], self._chunker)
        self._bytes += len(content.data)
        return self._begun(self._pool.submit(self._parse, content), len(content.data))

    def refusal(self, name: str) -> str | None:
        """See `Parsing`."""
        return self._parsers[0].refusal(name)

    def may_read_more(self, reason: str | None) -> bool:
        """See `Parsing`."""
        return self._parsers[0].may_read_more(reason)

    def close(self) -> None:
        """Drop what is not begun. What is, ends when its parser is interrupted."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _parse(self, content: Content) -> list[Chunked | BadRecord]:
        parser = self._free.get()
        try:
            return list(read_content(content, parser, self._chunker))
        finally:
            self._free.put(parser)

    def _begun(self, future: Future[list[Chunked | BadRecord]], size: int) -> Iterator[Chunked | BadRecord]:
        try:
            items = future.result()
        finally:
            self._bytes -= size
        yield from items


def read_content(content: Content, parser: ParserProcess, chunker: Chunker) -> Iterator[Chunked | BadRecord]:
    """Load and chunk, one document after the other.

    Raises:
        NoText, Unsupported, LoaderError: as `load_bytes` does.
    """
    if content.data is None:
        assert content.path is not None
        items = load_file(content.path, source_id=content.source_id, uri=content.uri, parser=parser)
    else:
        items = load_bytes(
            content.data, content.name, source_id=content.source_id, uri=content.uri, kind=content.kind, parser=parser
        )
    yield from chunk_documents(items, chunker)
