"""Several documents and source rows in one transaction: what an ingestion acknowledges as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from thresher.corpus.documents import PreparedDocument, Source
from thresher.corpus.record.change import Change, checked
from thresher.corpus.record.documents import keys_of_source
from thresher.corpus.record.sources import put_source


@dataclass(frozen=True, slots=True)
class Put:
    """Insert a document or replace all of it."""

    prepared: PreparedDocument
    source_id: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Delete the source's documents that are not in `keep` and write its row; its counts are ignored."""

    source: Source
    keep: frozenset[str]


Step = Put | Finish


def checked_steps(steps: Sequence[Step], dimension: int) -> list[Step]:
    """The steps with their vectors in storable form.

    Raises:
        ValueError: see `checked`.
    """
    return [Put(checked(step.prepared, dimension), step.source_id) if isinstance(step, Put) else step for step in steps]


def apply_steps(connection: sqlite3.Connection, steps: Sequence[Step]) -> tuple[int, int]:
    """Apply steps in order inside a write transaction, as one logged operation if they touch any document.

    Returns (documents deleted, documents written or deleted).
    """
    change: Change | None = None
    removed = touched = 0
    for step in steps:
        if isinstance(step, Put):
            change = change or Change(connection, "upsert")
            change.put(step.prepared, step.source_id)
            touched += 1
            continue
        keys = keys_of_source(connection, step.source.id, keep=step.keep)
        if keys:
            change = change or Change(connection, "finish_source")
            change.remove(keys)
            removed += len(keys)
            touched += len(keys)
        put_source(connection, step.source)
    if change is not None:
        change.finish()
    return removed, touched
