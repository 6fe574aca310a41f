"""Reading documents and chunks from the record. Functions over an open transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from thresher.corpus.documents import Chunk, Vectors
from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.info import DocumentInfo
from thresher.corpus.record.values import storable

_CHUNK_COLUMNS = "c.id, d.id, d.uri, d.title, c.position, c.start, c.stop, t.text, d.metadata"
_CHUNK_TABLES = "chunks c JOIN documents d ON d.key = c.document_key"
_WITH_TEXT = f"{_CHUNK_TABLES} JOIN chunks_text t ON t.chunk_id = c.id"


def id_list(ids: Iterable[int]) -> str:
    """Ids as one JSON parameter for `json_each`: any number of them in one statement."""
    return json.dumps(list(ids))


def text_list(texts: Iterable[str]) -> str:
    """Strings as one JSON parameter for `json_each`."""
    return json.dumps([storable(text) for text in texts])


def keys_of(connection: sqlite3.Connection, document_ids: Iterable[str]) -> list[int]:
    """Keys of the live documents among `document_ids`."""
    return _column(
        connection,
        "SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?)) ORDER BY key",
        text_list(document_ids),
    )


def keys_of_source(connection: sqlite3.Connection, source_id: str, *, keep: Collection[str] = ()) -> list[int]:
    """Keys of a source's documents, except those whose id is in `keep`."""
    kept = {storable(identifier) for identifier in keep}
    rows = connection.execute("SELECT key, id FROM documents WHERE source_id = ? ORDER BY key", (storable(source_id),))
    return [key for key, identifier in rows if identifier not in kept]


def load_chunks(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> dict[int, Chunk]:
    """The live chunks among `chunk_ids`, by id."""
    rows = connection.execute(
        f"SELECT {_CHUNK_COLUMNS} FROM {_WITH_TEXT} WHERE c.id IN (SELECT value FROM json_each(?))",
        (id_list(chunk_ids),),
    )
    return {row[0]: _chunk(row) for row in rows}


def document_ids(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> dict[int, str]:
    """Of each live chunk among `chunk_ids`, the id of its document."""
    return dict(
        connection.execute(
            f"SELECT c.id, d.id FROM {_CHUNK_TABLES} WHERE c.id IN (SELECT value FROM json_each(?))",
            (id_list(chunk_ids),),
        ).fetchall()
    )


def read_document(connection: sqlite3.Connection, document_id: str) -> list[Chunk] | None:
    """All chunks of a document in order, or None if there is no such document."""
    found = connection.execute("SELECT key FROM documents WHERE id = ?", (storable(document_id),)).fetchone()
    if not found:
        return None
    rows = connection.execute(
        f"SELECT {_CHUNK_COLUMNS} FROM {_WITH_TEXT} WHERE c.document_key = ? ORDER BY c.position", found
    )
    return [_chunk(row) for row in rows]


def document_text(connection: sqlite3.Connection, document_id: str) -> str | None:
    """The whole stored text of a document, or None if there is no such document."""
    row = connection.execute(
        "SELECT t.text FROM documents d JOIN documents_text t ON t.document_key = d.key WHERE d.id = ?",
        (storable(document_id),),
    ).fetchone()
    return row[0] if row else None


def iterate_documents(
    connection: sqlite3.Connection, *, source_id: str | None = None, document_id: str | None = None, after: int = 0
) -> Iterator[tuple[int, DocumentInfo]]:
    """(key, document) in the order of their keys, from the first key above `after`."""
    conditions, parameters = ["d.key > ?"], [after]
    texts = []
    for column, value in (("source_id", source_id), ("id", document_id)):
        if value is not None:
            conditions.append(f"d.{column} = ?")
            texts.append(storable(value))
    rows = connection.execute(
        "SELECT d.key, d.id, d.uri, d.title, d.metadata, d.content_hash, d.source_id, "
        "(SELECT count(*) FROM chunks c WHERE c.document_key = d.key) "
        f"FROM documents d WHERE {' AND '.join(conditions)} ORDER BY d.key",
        [*parameters, *texts],
    )
    for key, identifier, uri, title, metadata, content_hash, source, chunks in rows:
        yield key, DocumentInfo(identifier, uri, title, json.loads(metadata), content_hash, source, chunks)


def documents_by_id(
    connection: sqlite3.Connection, *, after: str, limit: int, source_id: str | None = None
) -> list[DocumentInfo]:
    """At most `limit` documents ordered by id (by the bytes of its UTF-8 form), from the first past `after`."""
    ours = "" if source_id is None else "AND d.source_id = ?3"
    rows = connection.execute(
        "SELECT d.id, d.uri, d.title, d.metadata, d.content_hash, d.source_id, "
        "(SELECT count(*) FROM chunks c WHERE c.document_key = d.key) "
        f"FROM documents d WHERE d.id > ?1 {ours} ORDER BY d.id LIMIT ?2",
        [storable(after), limit, *([] if source_id is None else [storable(source_id)])],
    )
    return [
        DocumentInfo(identifier, uri, title, json.loads(metadata), content_hash, source, chunks)
        for identifier, uri, title, metadata, content_hash, source, chunks in rows
    ]


def document_hashes(connection: sqlite3.Connection, document_ids: Iterable[str]) -> dict[str, str]:
    """Content hashes of the live documents among `document_ids`."""
    return dict(
        connection.execute(
            "SELECT id, content_hash FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (text_list(document_ids),),
        ).fetchall()
    )


def document_owners(connection: sqlite3.Connection, document_ids: Iterable[str]) -> dict[str, str]:
    """Source ids of the live documents among `document_ids`."""
    return dict(
        connection.execute(
            "SELECT id, source_id FROM documents WHERE id IN (SELECT value FROM json_each(?))",
            (text_list(document_ids),),
        ).fetchall()
    )


def live_chunks(connection: sqlite3.Connection, chunk_ids: Sequence[int], where: Filter | None) -> set[int]:
    """Which of `chunk_ids` are live and satisfy the filter."""
    if where is None:
        return set(
            _column(
                connection, "SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(?))", id_list(chunk_ids)
            )
        )
    condition, parameters = filter_sql(where, row_by_row=True)
    rows = connection.execute(
        f"SELECT c.id FROM {_CHUNK_TABLES} WHERE c.id IN (SELECT value FROM json_each(?)) AND ({condition})",
        [id_list(chunk_ids), *parameters],
    )
    return {row[0] for row in rows}


def matching_chunks(connection: sqlite3.Connection, where: Filter, limit: int | None = None) -> list[int]:
    """Ids of the chunks whose document satisfies the filter, at most `limit` of them."""
    condition, parameters = filter_sql(where)
    return _column(
        connection,
        f"SELECT c.id FROM documents d JOIN chunks c ON c.document_key = d.key WHERE {condition} LIMIT ?",
        *parameters,
        -1 if limit is None else limit,
    )


def chunk_count(connection: sqlite3.Connection) -> int:
    """How many chunks are live."""
    return int(connection.execute("SELECT count(*) FROM chunks").fetchone()[0])


def document_count(connection: sqlite3.Connection) -> int:
    """How many documents are live."""
    return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])


def vectors_of(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> list[tuple[int, int]]:
    """(vector id, chunk id) of the live chunks among `chunk_ids`."""
    return connection.execute(
        "SELECT vector_id, id FROM chunks WHERE id IN (SELECT value FROM json_each(?))", (id_list(chunk_ids),)
    ).fetchall()


def chunks_of(connection: sqlite3.Connection, vector_ids: Sequence[int]) -> list[tuple[int, int]]:
    """(vector id, chunk id) of the live chunks that have one of these vectors."""
    return connection.execute(
        "SELECT vector_id, id FROM chunks WHERE vector_id IN (SELECT value FROM json_each(?))", (id_list(vector_ids),)
    ).fetchall()


def vectors_in_order(connection: sqlite3.Connection, chunk_ids: Sequence[int], dimension: int) -> Vectors:
    """Vectors of live chunks, shape (len(chunk_ids), dimension), in the order given.

    Raises:
        KeyError: a chunk is not live.
    """
    vector_of = {chunk_id: vector_id for vector_id, chunk_id in vectors_of(connection, chunk_ids)}
    found, matrix = load_vectors(connection, sorted(set(vector_of.values())), dimension)
    place = {vector_id: i for i, vector_id in enumerate(found)}
    return matrix[[place[vector_of[chunk_id]] for chunk_id in chunk_ids]]


def load_vectors(
    connection: sqlite3.Connection, vector_ids: Sequence[int], dimension: int
) -> tuple[list[int], Vectors]:
    """Ids and vectors, shape (found, dimension), of the stored ones among `vector_ids`, ascending by id."""
    rows = connection.execute(
        "SELECT id, vector FROM vectors WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (id_list(vector_ids),),
    ).fetchall()
    return [row[0] for row in rows], stack_vectors([row[1] for row in rows], dimension)


def damaged_row(what: str) -> sqlite3.DatabaseError:
    """The error of a row that no writer wrote, as SQLite would raise it."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def stack_vectors(blobs: Sequence[bytes], dimension: int) -> Vectors:
    """Stored blobs as one matrix, shape (len(blobs), dimension)."""
    if any(not isinstance(blob, bytes) or len(blob) != 4 * dimension for blob in blobs):
        raise damaged_row(f"a vector has not {dimension} dimensions")
    return np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(blobs), dimension)


def known_vectors(connection: sqlite3.Connection, embed_hashes: Iterable[str]) -> dict[str, Vectors]:
    """A stored vector for each of the hashes that is known."""
    rows = connection.execute(
        "SELECT e.embed_hash, v.vector FROM embeddings e JOIN vectors v ON v.id = e.vector_id "
        "WHERE e.embed_hash IN (SELECT value FROM json_each(?))",
        (json.dumps(list(embed_hashes)),),
    )
    return {embed_hash: np.frombuffer(vector, dtype=np.float32) for embed_hash, vector in rows}


def _chunk(row: tuple[int, str, str, str, int, int, int, str, str]) -> Chunk:
    identifier, document_id, uri, title, position, start, stop, text, metadata = row
    return Chunk(identifier, document_id, uri, title, position, start, stop, text, json.loads(metadata))


def _column(connection: sqlite3.Connection, sql: str, *parameters: object) -> list[int]:
    return [row[0] for row in connection.execute(sql, parameters)]
