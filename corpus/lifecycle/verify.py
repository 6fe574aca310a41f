"""The cross-check of a collection."""

from __future__ import annotations

import hashlib
import sqlite3

from thresher.corpus.errors import CollectionDamaged
from thresher.corpus.info import VerifyReport
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.record.documents import document_count
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.managed import ManagedDense

# Each query counts rows that must not exist.
_RECORD_RULES = {
    "chunks without a document": "SELECT count(*) FROM chunks WHERE document_key NOT IN (SELECT key FROM documents)",
    "chunks without a vector": "SELECT count(*) FROM chunks WHERE vector_id NOT IN (SELECT id FROM vectors)",
    "chunks without text": "SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk_id FROM chunks_text)",
    "texts without a chunk": "SELECT count(*) FROM chunks_text WHERE chunk_id NOT IN (SELECT id FROM chunks)",
    "vectors without a chunk": "SELECT count(*) FROM vectors WHERE id NOT IN (SELECT vector_id FROM chunks)",
    "documents without text": (
        "SELECT count(*) FROM documents WHERE key NOT IN (SELECT document_key FROM documents_text)"
    ),
    "live chunks marked as deleted": (
        "SELECT count(*) FROM tombstones WHERE kind = 'chunk' AND id IN (SELECT id FROM chunks)"
    ),
    "documents with a gap in their chunks": (
        "SELECT count(*) FROM (SELECT 1 FROM chunks GROUP BY document_key HAVING max(position) + 1 <> count(*))"
    ),
}


def find_problems(store: Store, lexical: ManagedLexical, dense: ManagedDense) -> VerifyReport:
    """Check the record by itself, then each derived index against it. Needs the write lock."""
    with store.read() as connection:
        problems = [
            f"corpus.db: {row[0]}: restore a backup, or ingest again"
            for row in connection.execute("PRAGMA integrity_check(10)")
            if row[0] != "ok"
        ]
        for what, sql in _RECORD_RULES.items():
            (count,) = connection.execute(sql).fetchone()
            if count:
                problems.append(f"corpus.db: {count} {what}: ingest the sources again")
        for what, differing in (
            ("passages that differ from their documents", _differing_passages),
            ("vectors that are not what was written", _differing_vectors),
        ):
            if count := differing(connection):
                problems.append(f"corpus.db: {count} {what}: restore a backup, or ingest the sources again")
        live = {row[0] for row in connection.execute("SELECT id FROM chunks")}
        documents = document_count(connection)
    problems += _trigram_problems(store)
    problems += lexical.problems(live)
    problems += dense.problems()
    return VerifyReport(documents, len(live), tuple(problems))


def _differing_passages(connection: sqlite3.Connection) -> int:
    """Every passage is stored twice, by itself and in its document: bits that flip in one of the two show here."""
    differing, own, text = 0, None, ""
    rows = connection.execute(
        "SELECT c.document_key, c.start, c.stop, t.text FROM chunks c JOIN chunks_text t ON t.chunk_id = c.id "
        "ORDER BY c.document_key, c.position"
    )
    for key, start, stop, passage in rows:
        if not (isinstance(start, int) and isinstance(stop, int)):
            differing += 1
            continue
        if key != own:
            found = connection.execute("SELECT text FROM documents_text WHERE document_key = ?", (key,)).fetchone()
            own, text = key, str(found[0]) if found else ""
        differing += text[start:stop] != passage
    return differing


def _differing_vectors(connection: sqlite3.Connection) -> int:
    rows = connection.execute("SELECT digest, vector FROM vectors")
    return sum(not isinstance(vector, bytes) or hashlib.sha256(vector).digest() != digest for digest, vector in rows)


def _trigram_problems(store: Store) -> list[str]:
    try:
        with store.write() as connection:
            connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
    except CollectionDamaged as error:
        return [f"trigram index differs from the chunks ({error}): run `thresher rebuild`"]
    return []
