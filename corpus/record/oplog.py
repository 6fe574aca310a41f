"""The operation log, and how far each derived index has followed it.

An operation's additions are the live chunks and vectors with ids from its `first_chunk` and `first_vector` on (ids only
grow); its removals are the tombstones with its `seq`. So what an index at `applied_seq` lacks can be read from the
record at any time, and reading it twice does no harm.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

DERIVED = ("lexical", "dense")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a derived index stands. `fault` says why its generation must not be used; None if it may."""

    generation: int
    applied_seq: int
    fault: str | None


@dataclass(frozen=True, slots=True)
class Pending:
    """What an index lacks: remove these ids, then add what is live from `first` on, up to operation `seq`."""

    seq: int
    first: int
    removed: tuple[int, ...]


def begin_operation(connection: sqlite3.Connection, kind: str) -> int:
    """Log an operation as part of the running write transaction; returns its seq."""
    used = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    cursor = connection.execute(
        "INSERT INTO ops (kind, at, first_chunk, first_vector) VALUES (?, ?, ?, ?)",
        (kind, time.time(), used.get("chunks", 0) + 1, used.get("vectors", 0) + 1),
    )
    return int(cursor.lastrowid or 0)


def last_seq(connection: sqlite3.Connection) -> int:
    """The newest operation, 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM ops").fetchone()[0])


def newest_id(connection: sqlite3.Connection, kind: Literal["chunk", "vector"]) -> int:
    """The largest id of that kind that was ever given out, living or not; 0 if none was."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (f"{kind}s",)).fetchone()
    return int(row[0]) if row else 0


def pending_since(connection: sqlite3.Connection, kind: Literal["chunk", "vector"], applied_seq: int) -> Pending | None:
    """What an index of chunks or of vectors at `applied_seq` lacks, or None if it lacks nothing."""
    row = connection.execute(
        f"SELECT max(seq), (SELECT first_{kind} FROM ops WHERE seq > :applied ORDER BY seq LIMIT 1) "
        "FROM ops WHERE seq > :applied",
        {"applied": applied_seq},
    ).fetchone()
    if row[0] is None:
        return None
    removed = connection.execute(
        "SELECT id FROM tombstones WHERE kind = ? AND seq > ? ORDER BY id", (kind, applied_seq)
    ).fetchall()
    return Pending(int(row[0]), int(row[1]), tuple(row[0] for row in removed))


def not_yet_applied(
    connection: sqlite3.Connection, kind: Literal["chunk", "vector"], applied_seq: int
) -> tuple[int, int]:
    """The first id that an index at `applied_seq` cannot have yet, and the newest that was ever given out.

    What it has from the first on is either the part of a step that a crash kept from being noted, or comes from
    operations that the record has lost since (a power loss, an older copy of the file); these ids are given out again.
    """
    newest = newest_id(connection, kind)
    pending = pending_since(connection, kind, applied_seq)
    return (pending.first if pending else newest + 1), newest


def load_progress(connection: sqlite3.Connection, name: str) -> Progress:
    """Where a derived index stands; generation 0 means that none was ever built."""
    row = connection.execute("SELECT generation, applied_seq, fault FROM derived WHERE name = ?", (name,)).fetchone()
    return Progress(*row) if row else Progress(0, 0, None)


def save_progress(connection: sqlite3.Connection, name: str, progress: Progress) -> None:
    """Record where a derived index stands."""
    connection.execute(
        "INSERT OR REPLACE INTO derived (name, generation, applied_seq, fault) VALUES (?, ?, ?, ?)",
        (name, progress.generation, progress.applied_seq, progress.fault),
    )


def prune_tombstones(connection: sqlite3.Connection) -> None:
    """Forget removals that every derived index has followed. Only safe while no index is being built."""
    connection.execute(
        "DELETE FROM tombstones WHERE seq <= (SELECT min(applied_seq) FROM derived HAVING count(*) = ?)",
        (len(DERIVED),),
    )
