"""Another embedder for a collection, from the text it already holds: no source file is needed.

The new vectors are staged in the record page by page, so an interrupted run goes on where it stopped; one transaction
then exchanges them for the old ones. Until that transaction the collection is what it was.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder, embedding_hash, embedding_input
from thresher.corpus.errors import EmbedderError
from thresher.corpus.info import RebuildReport
from thresher.corpus.layout import open_record
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.manifest import RECORDED_EMBEDDER
from thresher.corpus.paths import require_collection
from thresher.corpus.record.change import vector_id_of
from thresher.corpus.record.documents import chunk_count, stack_vectors
from thresher.corpus.record.oplog import begin_operation, load_progress, save_progress
from thresher.corpus.record.store import Store

_PAGE = 256

Page = list[tuple[int, str, str]]
"""(chunk id, embedding hash, embedding input)."""


def reembed(path: Path, embedder: Embedder, *, on_progress: Callable[[int, int], None] | None = None) -> RebuildReport:
    """Embed every chunk of the collection at `path` again and rebuild its derived indexes.

    Args:
        on_progress: called with (chunks done, chunks in all) after every page.

    Raises:
        CollectionNotFound, CollectionLocked, CollectionDamaged: as for `Collection.open`.
        EmbedderError: the embedder's vectors are not what it promises; nothing was changed.
    """
    started = time.monotonic()
    path = Path(path)
    require_collection(path)
    lock = DirectoryLock(path)
    try:
        manifest, store = open_record(path)
        try:
            embedded = _stage(store, embedder, on_progress or (lambda done, total: None))
            _exchange(store, embedder)
        finally:
            store.close()
        replace(manifest, embedder=embedder.info).write(path)
    finally:
        lock.release()
    with Collection.open(path, embedder=embedder) as collection:
        report = collection.rebuild()
    return replace(report, embedded=embedded, seconds=time.monotonic() - started)


def _stage(store: Store, embedder: Embedder, on_progress: Callable[[int, int], None]) -> int:
    identity = json.dumps(asdict(embedder.info))
    with store.write() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS staged (embed_hash TEXT PRIMARY KEY, vector BLOB NOT NULL)")
        if connection.execute("SELECT value FROM meta WHERE name = 'staged_by'").fetchone() != (identity,):
            connection.execute("DELETE FROM staged")
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('staged_by', ?)", (identity,))
        total = chunk_count(connection)
    done, embedded, after = 0, 0, 0
    while True:
        with store.read() as connection:
            page = next(_pages(connection, after), [])
            known = {
                row[0]
                for row in connection.execute(
                    "SELECT embed_hash FROM staged WHERE embed_hash IN (SELECT value FROM json_each(?))",
                    (json.dumps([digest for _, digest, _ in page]),),
                )
            }
        if not page:
            return embedded
        wanted = {digest: text for _, digest, text in page if digest not in known}
        if wanted:
            rows = _checked(embedder.embed_passages(list(wanted.values())), len(wanted), embedder)
            with store.write() as connection:
                connection.executemany(
                    "INSERT INTO staged VALUES (?, ?)",
                    [(digest, row.tobytes()) for digest, row in zip(wanted, rows, strict=True)],
                )
        embedded += len(wanted)
        done += len(page)
        after = page[-1][0]
        on_progress(done, total)


def _exchange(store: Store, embedder: Embedder) -> None:
    with store.write() as connection:
        seq = begin_operation(connection, "reembed")
        connection.execute("INSERT INTO tombstones (kind, id, seq) SELECT 'vector', id, ? FROM vectors", (seq,))
        connection.execute("DELETE FROM vectors")
        connection.execute("DELETE FROM embeddings")
        for page in _pages(connection, 0):
            for chunk_id, digest, _ in page:
                (blob,) = connection.execute("SELECT vector FROM staged WHERE embed_hash = ?", (digest,)).fetchone()
                vector = stack_vectors([blob], embedder.info.dimension)[0]
                connection.execute(
                    "UPDATE chunks SET vector_id = ? WHERE id = ?", (vector_id_of(connection, digest, vector), chunk_id)
                )
        connection.execute("DROP TABLE staged")
        connection.execute("DELETE FROM meta WHERE name = 'staged_by'")
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", (RECORDED_EMBEDDER, json.dumps(asdict(embedder.info)))
        )
        old = load_progress(connection, "dense")
        save_progress(connection, "dense", replace(old, fault="the collection was embedded again"))


def _pages(connection: sqlite3.Connection, after: int) -> Iterator[Page]:
    rows = connection.execute(
        "SELECT c.id, d.title, t.text FROM chunks c JOIN documents d ON d.key = c.document_key "
        "JOIN chunks_text t ON t.chunk_id = c.id "
        "WHERE c.id > ? ORDER BY c.id",
        (after,),
    )
    while page := rows.fetchmany(_PAGE):
        inputs = [(chunk_id, embedding_input(title, text)) for chunk_id, title, text in page]
        yield [(chunk_id, embedding_hash(text), text) for chunk_id, text in inputs]


def _checked(rows: Vectors, count: int, embedder: Embedder) -> Vectors:
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    shape = (count, embedder.info.dimension)
    if rows.shape != shape or not np.all(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < 1e-2):
        raise EmbedderError(
            f"embedder {embedder.info.spec!r} returned vectors of shape {rows.shape}, expected unit vectors of {shape}"
        )
    return rows
