"""Files of JSON lines: written whole, or appended to so that a kill leaves at most half a line, which is cut off."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_BLOCK = 1 << 16


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> int:
    """Write JSON objects, one a line, so that an error leaves the old file or none; how many there were."""
    temporary = path.with_name(f"{path.name}.new")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for record in records:
                # Escaped only where UTF-8 has no form for it: a lone surrogate.
                text = json.dumps(record, ensure_ascii=False)
                file.write((text if _encodable(text) else json.dumps(record)) + "\n")
                count += 1
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return count


class LineFile:
    """A file that one process at a time appends lines to. It is made, with its folder, if it is not there.

    Attributes:
        cut: bytes of a torn last line that were cut off when it was opened.

    Raises:
        BlockingIOError: another process has it open.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.cut = self._cut_torn_line()
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, lines: bytes, *, sync: bool) -> None:
        """Write whole lines; with `sync` they are on the disk when this returns. If it raises, none of them is there.

        Raises:
            OSError: the disk is full, or gone.
        """
        size = os.fstat(self._fd).st_size
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            if sync:
                os.fsync(self._fd)
        except BaseException:
            os.ftruncate(self._fd, size)
            raise

    def clear(self) -> None:
        """Take all lines out.

        Raises:
            OSError: the disk is gone.
        """
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)

    def close(self) -> None:
        """Let others write."""
        os.close(self._fd)

    def _cut_torn_line(self) -> int:
        """Cut what follows the last line end, reading from the back; the number of bytes that were cut."""
        size = end = os.fstat(self._fd).st_size
        while end > 0:
            start = max(0, end - _BLOCK)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._fd, end)
            os.fsync(self._fd)
        return size - end


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
