"""Writing documents to the record: one logged operation at a time."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable

import numpy as np

from thresher.corpus.documents import PreparedDocument, Vectors
from thresher.corpus.embedders.vectors import are_unit_vectors
from thresher.corpus.record.documents import id_list
from thresher.corpus.record.oplog import begin_operation
from thresher.corpus.record.values import storable, typed_value


class Change:
    """One logged operation on documents inside a write transaction. `finish` must come last."""

    def __init__(self, connection: sqlite3.Connection, kind: str) -> None:
        self._connection = connection
        self._seq = begin_operation(connection, kind)
        self._released: set[int] = set()

    def put(self, prepared: PreparedDocument, source_id: str) -> None:
        """Insert a document, or replace all of it: its old chunks die, its new ones get new ids."""
        connection, document = self._connection, prepared.document
        text = storable(document.text)
        row = (
            storable(source_id),
            storable(document.uri),
            storable(document.title),
            document.content_hash,
            json.dumps(dict(document.metadata), ensure_ascii=True),
            storable(document.id),
        )
        found = connection.execute("SELECT key FROM documents WHERE id = ?", row[-1:]).fetchone()
        if found:
            key = int(found[0])
            self._clear(key)
            connection.execute(
                "UPDATE documents SET source_id = ?, uri = ?, title = ?, content_hash = ?, metadata = ? WHERE id = ?",
                row,
            )
        else:
            key = _inserted(
                connection,
                "INSERT INTO documents (source_id, uri, title, content_hash, metadata, id) VALUES (?, ?, ?, ?, ?, ?)",
                *row,
            )
        connection.execute("INSERT INTO documents_text VALUES (?, ?)", (key, text))
        connection.executemany(
            "INSERT OR REPLACE INTO documents_metadata (name, kind, value, document_key) VALUES (?, ?, ?, ?)",
            [(storable(name), *typed_value(value), key) for name, value in document.metadata.items()],
        )
        for position, (span, embed_hash, vector) in enumerate(
            zip(prepared.spans, prepared.embed_hashes, prepared.vectors, strict=True)
        ):
            passage = text[span.start : span.end]
            chunk_id = _inserted(
                connection,
                "INSERT INTO chunks (document_key, vector_id, position, start, stop) VALUES (?, ?, ?, ?, ?)",
                key,
                vector_id_of(connection, embed_hash, vector),
                position,
                span.start,
                span.end,
            )
            connection.execute("INSERT INTO chunks_text VALUES (?, ?)", (chunk_id, passage))
            connection.execute("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", (chunk_id, passage))

    def remove(self, keys: Iterable[int]) -> None:
        """Delete documents with everything that hangs on them."""
        for key in keys:
            self._clear(key)
            self._connection.execute("DELETE FROM documents WHERE key = ?", (key,))

    def finish(self) -> None:
        """Delete the vectors that no chunk uses any more."""
        orphans = "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE vector_id = value)"
        listed = id_list(sorted(self._released))
        self._connection.execute(
            f"INSERT INTO tombstones (kind, id, seq) SELECT 'vector', value, ? FROM ({orphans})", (self._seq, listed)
        )
        self._connection.execute(f"DELETE FROM embeddings WHERE vector_id IN ({orphans})", (listed,))
        self._connection.execute(f"DELETE FROM vectors WHERE id IN ({orphans})", (listed,))

    def _clear(self, key: int) -> None:
        connection = self._connection
        rows = connection.execute("SELECT DISTINCT vector_id FROM chunks WHERE document_key = ?", (key,))
        self._released |= {row[0] for row in rows}
        connection.execute(
            "INSERT INTO tombstones (kind, id, seq) SELECT 'chunk', id, ? FROM chunks WHERE document_key = ?",
            (self._seq, key),
        )
        own = "SELECT id FROM chunks WHERE document_key = ?"
        connection.execute(
            "INSERT INTO chunks_fts (chunks_fts, rowid, text) "
            f"SELECT 'delete', chunk_id, text FROM chunks_text WHERE chunk_id IN ({own})",
            (key,),
        )
        connection.execute(f"DELETE FROM chunks_text WHERE chunk_id IN ({own})", (key,))
        for table in ("chunks", "documents_text", "documents_metadata"):
            connection.execute(f"DELETE FROM {table} WHERE document_key = ?", (key,))


def vector_id_of(connection: sqlite3.Connection, embed_hash: str, vector: Vectors) -> int:
    """The stored vector for this hash, or an equal one, or a new one."""
    found = connection.execute("SELECT vector_id FROM embeddings WHERE embed_hash = ?", (embed_hash,)).fetchone()
    if found:
        return int(found[0])
    blob = vector.tobytes()
    digest = hashlib.sha256(blob).digest()
    found = connection.execute("SELECT id FROM vectors WHERE digest = ?", (digest,)).fetchone()
    if found:
        vector_id = int(found[0])
    else:
        vector_id = _inserted(connection, "INSERT INTO vectors (digest, vector) VALUES (?, ?)", digest, blob)
    connection.execute("INSERT INTO embeddings VALUES (?, ?)", (embed_hash, vector_id))
    return vector_id


def _inserted(connection: sqlite3.Connection, sql: str, *parameters: object) -> int:
    return int(connection.execute(sql, parameters).lastrowid or 0)


def checked(prepared: PreparedDocument, dimension: int) -> PreparedDocument:
    """The document with its vectors in storable form.

    Raises:
        ValueError: spans, hashes and vectors do not fit each other or the dimension, or a number is not finite.
    """
    identifier, length = prepared.document.id, len(prepared.document.text)
    count = len(prepared.spans)
    vectors = np.ascontiguousarray(prepared.vectors, dtype=np.float32)
    if not identifier:
        raise ValueError("a document needs an id")
    if count == 0:
        vectors = vectors.reshape(0, dimension)
    if len(prepared.embed_hashes) != count or vectors.shape != (count, dimension):
        raise ValueError(
            f"document {identifier!r}: {count} spans, {len(prepared.embed_hashes)} hashes and vectors of shape "
            f"{prepared.vectors.shape}; expected ({count}, {dimension})"
        )
    if any(not 0 <= span.start < span.end <= length for span in prepared.spans):
        raise ValueError(f"document {identifier!r}: a span is empty or lies outside its {length} characters")
    if not are_unit_vectors(vectors):
        raise ValueError(f"document {identifier!r}: vectors must be finite and of unit length")
    for name, value in prepared.document.metadata.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(
                f"document {identifier!r}: metadata {name!r} is {value}, for which JSON has no form: leave it out, "
                "or give it as text"
            )
    return PreparedDocument(prepared.document, prepared.spans, prepared.embed_hashes, vectors)
