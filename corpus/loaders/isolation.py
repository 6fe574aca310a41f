"""Parsing in a child process with limits on time and memory. One child is kept and used again."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, Unsupported
from thresher.corpus.loaders.formats import Format
from thresher.corpus.loaders.worker import receive, send

TIME_S = 60.0
MEMORY_BYTES = 2 * 1024**3
_GRACE_S = 2.0

_ERRORS = {NoText.code: NoText, Unsupported.code: Unsupported}


class ParserProcess:
    """Parses files in a child; a hang or a crash costs one file and a restart. Calls are serialised.

    Args:
        time_s: a parse that takes longer is killed.
        memory_bytes: address space of the child, where the platform enforces it.
    """

    def __init__(self, *, time_s: float = TIME_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._time_s = time_s
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def extract(self, data: bytes, kind: Format) -> Extracted:
        """The text of a file's bytes.

        Raises:
            NoText, Unsupported, LoaderError: as the format's loader does, or because a limit was hit.
        """
        with self._lock:
            answer = self._ask(data, kind)
        if "error" in answer:
            if answer["error"] == "memory":
                raise LoaderError(f"parsing needs more than {self._memory_bytes // 2**20} MB of memory")
            raise _ERRORS.get(answer["error"], LoaderError)(answer["message"])
        return Extracted(answer["text"], answer["title"], answer["metadata"])

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

    def _ask(self, data: bytes, kind: Format) -> dict[str, Any]:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        request = {"format": kind.value, "time_s": self._time_s + _GRACE_S, "memory_bytes": self._memory_bytes}
        try:
            send(child.stdin, json.dumps(request).encode())
            send(child.stdin, data)
            # The child reads a whole request before it starts to parse, so the clock starts here.
            ready, _, _ = select.select([child.stdout], [], [], self._time_s)
            payload = receive(child.stdout) if ready else None
        except BaseException as error:
            self._kill()  # an interrupted exchange leaves half a frame in the pipe
            if isinstance(error, OSError):
                raise LoaderError("the parser died before it read the file; try again") from error
            raise
        if payload is not None:
            answer: dict[str, Any] = json.loads(payload)
            return answer
        if not ready:
            self._kill()
            raise LoaderError(f"parsing took longer than {self._time_s:g} s and was stopped")
        code = child.wait(_GRACE_S)
        self._kill()
        raise LoaderError(f"the parser crashed on this file (exit status {code}); the file may be damaged or hostile")

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
