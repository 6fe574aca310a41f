"""Parsing in a child process with limits on time and memory. One child is kept and used again."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType
from typing import IO, Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, Unsupported
from thresher.corpus.loaders.formats import OCR_HINT, SUFFIXES, Format
from thresher.corpus.loaders.worker import receive, send

TIME_S = 15.0
"""For a small file; each megabyte adds `TIME_PER_MB_S`, and OCR `OCR_TIME_S` and `OCR_TIME_PER_MB_S`."""
TIME_PER_MB_S = 6.0
OCR_TIME_S = 600.0
OCR_TIME_PER_MB_S = 120.0
MEMORY_BYTES = 2 * 1024**3
OCR_MEMORY_BYTES = 6 * 1024**3
_GRACE_S = 2.0
_SOFT_SHARE = 0.8
_IN_MEMORY = 32 * 1024**2

_ERRORS = {NoText.code: NoText, Unsupported.code: Unsupported}


class _Stalled(Exception):
    """The child did not answer in time."""


class ParserProcess:
    """Parses files in a child; a hang or a crash costs one file and a restart. Calls are serialised.

    Args:
        time_s: a parse that takes longer is stopped; by default as long as a file of its size may take.
        memory_bytes: address space of the child, where the platform enforces it.
        ocr: read scanned pages and pictures; needs the `ocr` extra.

    Raises:
        LoaderError: OCR is asked for, but its package is not installed.
    """

    def __init__(self, *, time_s: float | None = None, memory_bytes: int | None = None, ocr: bool = False) -> None:
        if ocr:
            from thresher.corpus.loaders.ocr import require_ocr

            require_ocr()
        self.ocr = ocr
        self._time_s = time_s
        self._memory_bytes = memory_bytes or (OCR_MEMORY_BYTES if ocr else MEMORY_BYTES)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """The arguments that make another one like it, as pairs."""
        return (("time_s", self._time_s), ("memory_bytes", self._memory_bytes), ("ocr", self.ocr))

    def refusal(self, name: str) -> str | None:
        """Why a file of that name need not even be opened, or None: pictures, while OCR is off."""
        if self.ocr or SUFFIXES.get(PurePath(name).suffix.lower()) is not Format.IMAGE:
            return None
        return f"a picture; {OCR_HINT}"

    def may_read_more(self, reason: str | None) -> bool:
        """Whether a file that was left with `reason` would be read better now, although it has not changed."""
        return self.ocr and reason is not None and OCR_HINT in reason

    def parts(self, data: bytes, kind: Format, name: str = "") -> Iterator[Part | BadRecord]:
        """The documents in a file's bytes. All or nothing: they come when the child has read the whole file.

        Raises:
            NoText, Unsupported, LoaderError: as the format's loader does, or because a limit was hit.
        """
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
            with self._lock:
                self._ask(data, kind, name, spool)
            spool.seek(0)
            while (payload := receive(spool)) is not None:
                answer = json.loads(payload)
                yield BadRecord(**answer) if "reason" in answer else Part(**answer)

    def interrupt(self) -> None:
        """End a parse that another thread waits for; it fails there."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the child. The next parse would start a new one."""
        with self._lock:
            self._kill()

    def __enter__(self) -> ParserProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seconds(self, size: int) -> float:
        if self._time_s is not None:
            return self._time_s
        seconds = TIME_S + TIME_PER_MB_S * size / 2**20
        return seconds + OCR_TIME_S + OCR_TIME_PER_MB_S * size / 2**20 if self.ocr else seconds

    def _ask(self, data: bytes, kind: Format, name: str, spool: IO[bytes]) -> None:
        """Have the child parse; its parts are in `spool` as frames."""
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        seconds = self._seconds(len(data))
        request = {
            "format": kind.value,
            "name": name,
            "time_s": seconds + _GRACE_S,
            "soft_s": seconds * _SOFT_SHARE,
            "memory_bytes": self._memory_bytes,
            "ocr": self.ocr,
        }
        try:
            send(child.stdin, json.dumps(request).encode())
            send(child.stdin, data)
            # The child reads a whole request before it starts to parse, so the clock starts here.
            deadline = time.monotonic() + seconds
            while (payload := _receive_until(child.stdout.fileno(), deadline)) is not None:
                if payload.startswith(b'{"error":'):
                    self._conclude(json.loads(payload))
                    return
                send(spool, payload)
        except _Stalled as error:
            self._kill()
            raise LoaderError(
                f"parsing took longer than {seconds:g} s and was stopped; nothing of it is kept"
            ) from error
        except LoaderError:
            raise
        except BaseException as error:
            self._kill()  # an interrupted exchange leaves half a frame in the pipe
            if isinstance(error, OSError):
                raise LoaderError("the parser died before it read the file; try again") from error
            raise
        code = child.wait(_GRACE_S)
        self._kill()
        raise LoaderError(
            f"the parser crashed on this file (exit status {code}); the file may be damaged or hostile; "
            "nothing of it is kept"
        )

    def _conclude(self, answer: dict[str, Any]) -> None:
        code = answer["error"]
        if code == "memory":
            self._kill()  # it may keep what it had, and the next file would have less
            raise LoaderError(f"parsing needs more than {self._memory_bytes // 2**20} MB of memory")
        if code is not None:
            raise _ERRORS.get(code, LoaderError)(answer["message"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._kill()
            self._child = subprocess.Popen(
                # -P: the working directory may hold a json.py
                [sys.executable, "-P", "-m", "thresher.corpus.loaders.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._child

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # closing flushes what the dead child never read
                    continue
        child.wait()


def _receive_until(descriptor: int, deadline: float) -> bytes | None:
    """One frame; None at the end of the stream, which may come inside a frame.

    Raises:
        _Stalled: it is not complete at the deadline.
    """
    head = _read_until(descriptor, 4, deadline)
    if len(head) < 4:
        return None
    size = struct.unpack(">I", head)[0]
    payload = _read_until(descriptor, size, deadline)
    return payload if len(payload) == size else None


def _read_until(descriptor: int, size: int, deadline: float) -> bytes:
    """`size` bytes, or fewer at the end of the stream. Past Python's buffers, so that `poll` tells the truth."""
    blocks: list[bytes] = []
    missing = size
    waiting = select.poll()  # `select.select` takes no descriptor from 1024 on, which a busy server has
    waiting.register(descriptor, select.POLLIN)
    while missing:
        if not waiting.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise _Stalled
        block = os.read(descriptor, min(missing, 1 << 20))
        if not block:
            break
        blocks.append(block)
        missing -= len(block)
    return b"".join(blocks)
