"""The audit log, `THRESHER_HOME/audit.jsonl`: who asked for what, when, and how it ended. Never what was in it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from thresher.corpus.paths import home

logger = logging.getLogger("thresher.api")

KEPT = 5
"""Full files that are kept beside the one that is written: `audit.jsonl.1`, the newest, to `audit.jsonl.5`."""

WAITING = 10_000
"""Lines that may wait for the disk. Past it new ones are lost, and counted."""

GATHER_S = 0.05
"""How long a line waits for others that are then written with it: a file opened and locked for each would be dear."""

CLOSE_S = 5.0
"""How long a server that stops waits for the last lines."""

_ID = 256
"""Characters of an object's id that are kept: clients may send long ones."""


def audit_file() -> Path:
    """Where it lies."""
    return home() / "audit.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, as the log tells it. There is no field for what was asked, answered or proven.

    Attributes:
        time: when it came, in seconds since 1970.
        key_id: whose it was; None where no key was accepted.
        tenant: "" is the default tenant; None where no key was accepted.
        client: the address it came from; None if that is unknown.
        route: the template of the route, as `/v1/collections/{name}`; None where none was reached.
        objects: ids of what it was about, by kind.
        status: of the answer; 499 where the client had gone before there was one.
    """

    time: float
    request_id: str
    key_id: str | None
    tenant: str | None
    client: str | None
    method: str
    route: str | None
    objects: Mapping[str, str]
    status: int
    duration_ms: float

    def line(self) -> bytes:
        """One line of JSON, in ASCII: an id may hold what UTF-8 cannot."""
        document = {
            "time": _iso(self.time),
            "request_id": self.request_id,
            "key_id": self.key_id,
            "tenant": self.tenant,
            "client": self.client,
            "method": self.method,
            "route": self.route,
            "objects": {kind: value[:_ID] for kind, value in self.objects.items()},
            "status": self.status,
            "duration_ms": round(self.duration_ms, 1),
        }
        return json.dumps(document).encode() + b"\n"


@dataclass(slots=True)
class _State:
    """Guarded by the log's condition."""

    entries: list[Entry] = field(default_factory=list)
    lost: int = 0
    closed: bool = False


class AuditLog:
    """Takes entries from any thread at once, and writes them in one of its own.

    Several servers may share the file. A disk that is full costs lines, never a request: that is logged once, and the
    number of the lines that are lost stands in the file when it can be written again.
    """

    def __init__(self, path: Path, *, max_bytes: int, kept: int = KEPT, waiting: int = WAITING) -> None:
        """`max_bytes`: a file that is that large is put aside, and the oldest of more than `kept` is deleted."""
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._most = waiting
        self._state = _State()
        self._news = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing = False

    def write(self, entry: Entry) -> None:
        """Have an entry written soon. Neither waits nor fails."""
        with self._news:
            state = self._state
            if state.closed or len(state.entries) >= self._most:
                state.lost += 1
                return
            state.entries.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._news:
            self._state.closed = True
            self._closing.set()
            self._news.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._state.entries or self._state.closed)
            self._closing.wait(GATHER_S)
            with self._news:
                entries, self._state.entries = self._state.entries, []
                if not entries:
                    return
            self._append([entry.line() for entry in entries])

    def _append(self, lines: list[bytes]) -> None:
        with self._news:
            lost, self._state.lost = self._state.lost, 0
        if lost:
            lines.insert(0, json.dumps({"time": _iso(time.time()), "lost_entries": lost}).encode() + b"\n")
        written = 0
        try:
            for count, batch in _batches(lines, self._max_bytes):
                with self._opened() as file:
                    _write_whole(file, batch)
                written += count
        except Exception as error:  # whatever it is: what comes next is not to be lost with this
            missed = len(lines) - written
            with self._news:
                self._state.lost += missed if written or not lost else missed - 1 + lost
            if not self._failing:
                logger.warning("requests are not in the audit log: %s cannot be written (%s)", self._path, error)
            self._failing = True
        else:
            self._failing = False

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file, to append to, locked against other servers, and with room in it."""
        while True:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not self._is_current(file):  # another server has put it aside meanwhile
                    continue
                if os.fstat(file).st_size >= self._max_bytes:
                    self._put_aside()
                    continue
                os.fchmod(file, 0o600)
                yield file
                return
            finally:
                os.close(file)  # and so unlocks it

    def _is_current(self, file: int) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(file))

    def _put_aside(self) -> None:
        for number in range(self._kept, 1, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _batches(lines: list[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """The lines joined, each time as many as make up `size` bytes, so that no file grows much past that."""
    batch: list[bytes] = []
    length = 0
    for line in lines:
        batch.append(line)
        length += len(line)
        if length >= size:
            yield len(batch), b"".join(batch)
            batch, length = [], 0
    if batch:
        yield len(batch), b"".join(batch)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_whole(file: int, data: bytes) -> None:
    """Append all of it or nothing: a disk that fills up must not leave half a line for the next one to join."""
    size = os.fstat(file).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise
