"""Clearing the places of an HNSW file that no element uses.

An index of fewer vectors than it takes for a first save lies on disk as it was allocated: room for a hundred elements,
filled with whatever the process had in that memory before, which can be vectors that were deleted. (Found by looking
for a deleted vector in an index that it was never added to.) Once saved, the file holds its elements and no more. So
whoever closes an index clears them: opening one that was never saved fills them again.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

# Version (int32), then size_t: offset, capacity, elements, bytes an element.
_HEADER = struct.Struct("<i4Q")
_VERSION = 1
_LENGTH_BYTES = 4


def scrub_unused(directory: Path) -> None:
    """Overwrite the unused places in the files of a Chroma directory, which nothing may have open, with zeros."""
    for header in directory.glob("*/header.bin"):
        content = header.read_bytes()
        if len(content) < _HEADER.size:
            continue
        version, _, _, elements, size = _HEADER.unpack_from(content)
        if version != _VERSION:
            continue
        _clear(header.with_name("data_level0.bin"), elements * size)
        _clear(header.with_name("length.bin"), elements * _LENGTH_BYTES)


def _clear(file: Path, start: int) -> None:
    if not file.exists() or (unused := file.stat().st_size - start) <= 0:
        return
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(unused))
        stream.flush()
        os.fsync(stream.fileno())
