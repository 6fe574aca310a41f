"""Undoing a body's compression in bounded steps: a small answer may not become a large one."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator

ACCEPTED = "gzip, deflate"
"""What is asked for: encodings that can be undone with a limit on what comes out."""
_STEP = 256 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # told by the header


class TooLong(Exception):
    """More came than the limit."""


async def decoded(parts: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """The body, at most `limit` bytes of it.

    Raises:
        TooLong: it is longer, or what came for it is; no more than `limit` and one step of it was held.
        ValueError: the encoding is not one that was asked for, or the body does not keep to it.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        undo: _Inflate | None = None
    elif name in ("gzip", "x-gzip", "deflate"):
        undo = _Inflate()
    else:
        raise ValueError(f"the body is encoded as {encoding[:40]!r}, which was not asked for")
    blocks: list[bytes] = []
    came = size = 0
    async for part in parts:
        came += len(part)
        if came > limit:  # bodies can go on for ever and come to nothing
            raise TooLong
        for block in (part,) if undo is None else undo.feed(part):
            size += len(block)
            if size > limit:
                raise TooLong
            blocks.append(block)
    if undo is not None and not undo.ended:
        raise ValueError("the compressed body ends in the middle")
    return b"".join(blocks)


class _Inflate:
    """gzip, zlib, or what servers call deflate and is neither."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    @property
    def ended(self) -> bool:
        return self._engine.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes out, step by step: no more is undone than is taken. Raises `ValueError` if it is not so packed."""
        try:
            while data:
                if self._engine.eof:  # a gzip file may be several in a row; anything else behind it is padding
                    if not data.startswith(b"\x1f"):
                        break
                    self._engine = zlib.decompressobj(_GZIP_OR_ZLIB)
                block = self._engine.decompress(data, _STEP)
                self._begun = True
                if block:
                    yield block
                data = self._engine.unconsumed_tail or self._engine.unused_data
        except zlib.error as error:
            if self._begun:
                raise ValueError(f"the compressed body is broken: {error}") from error
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
            self._begun = True
            yield from self.feed(data)
