"""Whole documents out of the record, as they were put in. Functions over an open transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thresher.corpus.documents import Document, Span
from thresher.corpus.record.documents import text_list


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A live document with its text, its source and the spans of its passages."""

    document: Document
    source_id: str
    spans: tuple[Span, ...]


def load_stored(connection: sqlite3.Connection, document_ids: Iterable[str]) -> Iterator[StoredDocument]:
    """The live documents among `document_ids`, by id."""
    rows = connection.execute(
        "SELECT d.key, d.id, d.uri, d.title, d.content_hash, d.metadata, d.source_id, t.text "
        "FROM documents d JOIN documents_text t ON t.document_key = d.key "
        "WHERE d.id IN (SELECT value FROM json_each(?)) ORDER BY d.id",
        (text_list(document_ids),),
    )
    for key, identifier, uri, title, content_hash, metadata, source_id, text in rows:
        spans = connection.execute("SELECT start, stop FROM chunks WHERE document_key = ? ORDER BY position", (key,))
        document = Document(identifier, uri, title, text, json.loads(metadata), content_hash)
        yield StoredDocument(document, source_id, tuple(Span(*span) for span in spans))
