"""Connections and transactions of the record: one writer, many snapshot readers."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path

from thresher.corpus.access import no_space
from thresher.corpus.errors import CollectionClosed, CollectionDamaged, CollectionUnavailable
from thresher.corpus.record.schema import APPLICATION_ID, SCHEMA_VERSION, configure, create_schema

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSED = {
    sqlite3.SQLITE_CANTOPEN: "make its directory and files readable and writable for this user, and try again",
    sqlite3.SQLITE_PERM: "make its directory and files readable and writable for this user, and try again",
    sqlite3.SQLITE_READONLY: "make its directory and files writable for this user, and try again",
    sqlite3.SQLITE_IOERR: "check that its disk is mounted, sound and not full, and try again",
    sqlite3.SQLITE_BUSY: "another program has the database open; close that and try again",
}
_IDLE_READERS = 8


class Store:
    """The database file. Thread-safe; transactions are scoped by the context managers `read` and `write`."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open (or lay out) the database.

        Raises:
            CollectionDamaged: the file is missing, truncated, corrupt, or not a record.
            CollectionUnavailable: the operating system does not let it be read and written.
        """
        self._path = path
        self._writing = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        if not create and not path.is_file():
            raise CollectionDamaged(_advice(path, "the file is missing"))
        with self._translated():
            self._writer = self._connect()
            try:
                if create:
                    create_schema(self._writer)
                else:
                    self._check()
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: everything inside sees one snapshot."""
        connection = self._borrow()
        try:
            with self._translated():
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("ROLLBACK")
        finally:
            self._give_back(connection)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: durable when the block ends, undone when it raises."""
        with self._writing, self._translated():
            if self._closed:
                raise CollectionClosed("the collection is closed; open it again")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def meta(self, name: str) -> str | None:
        """A row of `meta`."""
        with self.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def vacuum(self) -> None:
        """Rewrite the file so that no freed byte stays, and empty the WAL.

        Raises:
            CollectionUnavailable: a read that is under way keeps the WAL from being emptied.
        """
        with self._writing, self._translated():
            self._writer.execute("VACUUM")
            (busy, *_) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise CollectionUnavailable(
                f"{self._path} was rewritten, but a search or a snapshot under way still needs old pages of its "
                "log: run this again when that has ended"
            )

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy, without freed pages, to a new file; reads and writes go on meanwhile.

        Raises:
            StorageFull: the disk of `target` is full.
            CollectionUnavailable: `target` cannot be written.
            CollectionDamaged: the database cannot be read.
        """
        connection = self._borrow()
        try:
            connection.execute("VACUUM INTO ?", (str(target),))
        except sqlite3.OperationalError as error:
            # What fails is nearly always the writing, so the message must name the copy.
            if (error.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_FULL:
                raise no_space(target) from error
            raise CollectionUnavailable(
                f"{self._path} could not be copied to {target} ({error}): check that its disk is writable and not full"
            ) from error
        except sqlite3.DatabaseError as error:
            raise CollectionDamaged(_advice(self._path, str(error))) from error
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Fold the WAL into the database and close every connection."""
        with self._writing, self._guard:
            if self._closed:
                return
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            with self._translated():
                try:
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _borrow(self) -> sqlite3.Connection:
        with self._guard:
            if self._closed:
                raise CollectionClosed("the collection is closed; open it again")
            if self._idle:
                return self._idle.pop()
        with self._translated():
            return self._connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def _check(self) -> None:
        (application,) = self._writer.execute("PRAGMA application_id").fetchone()
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID or version != SCHEMA_VERSION:
            raise CollectionDamaged(
                _advice(self._path, f"not a record (application {application:#x}, schema {version})")
            )
        # Touches the root page of every table that a start relies on; a truncated file fails here.
        for table in (
            "meta",
            "ops",
            "derived",
            "sources",
            "documents",
            "chunks",
            "chunks_text",
            "vectors",
            "embeddings",
            "tombstones",
        ):
            self._writer.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchone()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeDecodeError, JSONDecodeError) as error:
            # Bits that flipped inside a row, or in a name that SQLite's own message repeats.
            raise CollectionDamaged(_advice(self._path, f"a row cannot be read: {error}")) from error
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = code & 0xFF if code is not None else None
            # Python's own complaint about text that is no UTF-8 has no code.
            if primary in _DAMAGE or "decode to UTF-8" in str(error):
                raise CollectionDamaged(_advice(self._path, str(error))) from error
            if primary == sqlite3.SQLITE_FULL:
                raise no_space(self._path) from error
            if primary in _REFUSED:
                raise CollectionUnavailable(f"{self._path} cannot be used ({error}): {_REFUSED[primary]}") from error
            raise


def _advice(path: Path, what: str) -> str:
    directory = path.parent
    return (
        f"{path} is damaged ({what}). The files it was ingested from are untouched: restore {directory} from a backup, "
        f"or move it aside (`mv {directory} {directory}.damaged`) and run `thresher ingest` again; "
        f"`sqlite3 {path} .recover` may save the text if the files are gone"
    )
