"""Sources in the record. Functions over an open transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from thresher.corpus.documents import Source, Status
from thresher.corpus.record.documents import text_list
from thresher.corpus.record.values import storable

# Counts come from the documents themselves, so they cannot disagree with what a search can find.
_SELECT = """
SELECT s.id, s.root, s.content_hash, s.size, s.modified, s.status, s.reason,
  (SELECT count(*) FROM documents d WHERE d.source_id = s.id),
  (SELECT count(*) FROM documents d JOIN chunks c ON c.document_key = d.key WHERE d.source_id = s.id)
FROM sources s
"""


def put_source(connection: sqlite3.Connection, source: Source) -> None:
    """Insert or replace a source's row. Its document and chunk counts are not stored but counted."""
    connection.execute(
        "INSERT OR REPLACE INTO sources (id, root, content_hash, size, modified, status, reason) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            storable(source.id),
            storable(source.root),
            source.content_hash,
            source.size,
            source.modified,
            str(source.status),
            storable(source.reason) if source.reason is not None else None,
        ),
    )


def load_sources(connection: sqlite3.Connection, *, root: str | None = None) -> list[Source]:
    """All sources (of one root), by id."""
    if root is None:
        rows = connection.execute(f"{_SELECT} ORDER BY s.id")
    else:
        rows = connection.execute(f"{_SELECT} WHERE s.root = ? ORDER BY s.id", (storable(root),))
    return [_source(row) for row in rows]


def load_source(connection: sqlite3.Connection, source_id: str) -> Source | None:
    """One source, or None."""
    row = connection.execute(f"{_SELECT} WHERE s.id = ?", (storable(source_id),)).fetchone()
    return _source(row) if row else None


def source_rows(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """The rows of all sources as they are stored, by id: column name to value."""
    cursor = connection.execute("SELECT * FROM sources ORDER BY id")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def put_source_rows(connection: sqlite3.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert or replace rows as `source_rows` gives them; what is no column is left out."""
    columns = [column[0] for column in connection.execute("SELECT * FROM sources LIMIT 0").description]
    for row in rows:
        known = {name: row[name] for name in columns if name in row}
        places = ", ".join("?" * len(known))
        connection.execute(
            f"INSERT OR REPLACE INTO sources ({', '.join(known)}) VALUES ({places})", tuple(known.values())
        )


def drop_sources(connection: sqlite3.Connection, source_ids: Iterable[str]) -> None:
    """Delete the rows of sources; their documents are the caller's business."""
    connection.execute("DELETE FROM sources WHERE id IN (SELECT value FROM json_each(?))", (text_list(source_ids),))


def count_by_status(connection: sqlite3.Connection) -> dict[str, int]:
    """How many sources have each status."""
    return dict(connection.execute("SELECT status, count(*) FROM sources GROUP BY status ORDER BY status").fetchall())


def _source(row: tuple[str, str, str, int, float, str, str | None, int, int]) -> Source:
    identifier, root, content_hash, size, modified, status, reason, documents, chunks = row
    return Source(identifier, root, content_hash, size, modified, Status(status), reason, documents, chunks)
