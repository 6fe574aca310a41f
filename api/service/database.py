"""The server's own memory, `THRESHER_HOME/server.db`: keys, searches, jobs, idempotent responses.

SQLite in WAL mode. Each module that keeps something has its own table and creates it by `Database.ensure`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from thresher.api.errors import ConfigError
from thresher.corpus.paths import home

SCHEMA_VERSION = 1

WAIT_S = 0.25
"""How long an event loop may be held up where another process is writing; then whoever asked is refused."""

PATIENCE_S = 30.0
"""How long a thread waits for the other process. It lets others have the connection meanwhile."""

_AGAIN_S = 0.02


def server_database() -> Path:
    """Where it lies."""
    return home() / "server.db"


class Database:
    """One connection that all threads share, one at a time: what is kept is small and each use is short."""

    def __init__(self, path: Path) -> None:
        """Open it, made if need be, readable by its owner only: questions and answers are private.

        Raises:
            ConfigError: it cannot be opened, or a newer release wrote it.
        """
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=PATIENCE_S)
            self._connection.row_factory = sqlite3.Row
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._connection.execute(f"PRAGMA busy_timeout = {round(WAIT_S * 1000)}")
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"{path} cannot be used ({error}): see that its folder can be written; if the file is damaged, move it "
                "away: collections are not affected, but keys and the history of searches and jobs are in it"
            ) from error
        if version > SCHEMA_VERSION:
            self._connection.close()
            raise ConfigError(f"{path} was written by a newer release of thresher: upgrade this one, or move it away")

    def ensure(self, statements: str) -> None:
        """Create a table that is not there yet. `statements` are `CREATE … IF NOT EXISTS`, separated by `;`."""
        self._patiently(lambda: self._connection.executescript(statements))

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        self._patiently(self._begin)
        try:
            yield self._connection
            self._connection.execute("COMMIT")  # which a full disk can refuse, and that leaves the transaction open
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._lock.release()

    def execute(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> None:
        """One statement that is a transaction of its own: a third of the calls of `write`, which all wait in turn."""
        self._patiently(lambda: self._connection.execute(statement, parameters))

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, to read from."""
        with self._lock:
            yield self._connection

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._connection.close()

    def _begin(self) -> None:
        """Begin a transaction, and have the connection for oneself from then on."""
        self._lock.acquire()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._lock.release()
            raise

    def _patiently(self, act: Callable[[], object]) -> None:
        """Do it, again and again while another process is writing; in an event loop, which has to go on, once."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self._lock:
                    act()
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or _in_event_loop() or time.monotonic() > until:
                    raise
            time.sleep(_AGAIN_S)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
