"""Undoing a body's compression in bounded steps: a small answer may not become a large one."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

ACCEPTED = "gzip, deflate"
"""What is asked for: encodings that can be undone with a limit on what comes out."""
_STEP = 256 * 1024


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
        undo = _Inflate(raw=False)
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

    def __init__(self, *, raw: bool) -> None:
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS if raw else 32 + zlib.MAX_WBITS)
        self._begun = raw
        self._first = b""

    @property
    def ended(self) -> bool:
        return self._engine.eof

    def feed(self, data: bytes) -> list[bytes]:
        """What comes out, in steps. Raises `ValueError` where it is not compressed so."""
        blocks: list[bytes] = []
        try:
            while data:
                if self._engine.eof:  # a gzip file may be several in a row; anything else behind it is padding
                    if not data.startswith(b"\x1f"):
                        break
                    self._engine = zlib.decompressobj(32 + zlib.MAX_WBITS)
                block = self._engine.decompress(data, _STEP)
                self._begun = True
                if block:
                    blocks.append(block)
                    if len(blocks) > 64:  # 16 MB out of one part of a body: nothing that is read here
                        raise TooLong
                data = self._engine.unconsumed_tail or self._engine.unused_data
        except zlib.error as error:
            if self._begun:
                raise ValueError(f"the compressed body is broken: {error}") from error
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
            self._begun = True
            return self.feed(data)
        return blocks
