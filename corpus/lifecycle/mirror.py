"""Making one collection hold the documents of another, with vectors (and passages) of its own.

Which documents differ is found by comparing the two records, so a mirror that was cut off goes on where it was, and
repeating it until nothing differs follows a source that is being written to. To spare reading all texts each time, the
target remembers up to which chunk of which record it is a faithful copy: chunk ids only grow, so a document whose
chunks are all older has not changed since.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thresher.corpus.collection import Collection as OpenCollection
from thresher.corpus.documents import Vectors
from thresher.corpus.ingestion.preparing import Chunked, KnownVectors, prepare_documents
from thresher.corpus.record.batch import Put
from thresher.corpus.record.collection_id import collection_id
from thresher.corpus.record.documents import document_count, known_vectors
from thresher.corpus.record.oplog import newest_id
from thresher.corpus.record.origins import add_origins, load_origins
from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.sources import drop_sources, put_source_rows, source_rows
from thresher.corpus.record.store import Store
from thresher.corpus.record.stored import load_stored

MIRRORS = "mirrors"
"""Row of the target's `meta`: the record that it mirrors, and the newest chunk that it has seen of it."""

_BATCH_CHUNKS = 256
_PAGE = 64

OnProgress = Callable[[int, int], None]
"""Called with (documents done, documents in all)."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What a target must do to be level with its source.

    Attributes:
        changed: documents that it lacks or has otherwise; `gone` those that it has too many.
        sources: whether its rows about sources differ.
        mark: the newest chunk of the source when it was looked at.
        total: documents of the source.
    """

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    sources: bool
    mark: int
    total: int

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.sources)


@dataclass(frozen=True, slots=True)
class Copied:
    """What one pass did."""

    documents: int = 0
    removed: int = 0
    embedded: int = 0
    reused: int = 0


def faithful_to(target: Store, source: Store) -> bool:
    """Whether the target was once level with this source."""
    return _mark(target, source) is not None


def remember(target: Store, source: Store, mark: int) -> None:
    """Note that the target is level with the source up to chunk `mark`."""
    value = json.dumps({"record": collection_id(source), "chunk": mark})
    with target.write() as connection:
        put_meta(connection, MIRRORS, value)


def find_differences(source: Store, target: Store, *, same_spans: bool) -> Differences:
    """Compare two records. With `same_spans` the passages of a document must be the same ones."""
    mark = _mark(target, source)
    keys: dict[str, int] = {}
    suspects: list[str] = []
    gone: list[str] = []
    with source.read() as theirs, target.read() as ours:
        for identifier, here, there in _merged(theirs, ours, -1 if mark is None else mark):
            if here is None:
                gone.append(identifier)
            elif there is None or here[:-2] != there[:-2]:
                keys[identifier] = here[-2]
            elif here[-1]:
                suspects.append(identifier)
                keys[identifier] = here[-2]
        for start in range(0, len(suspects), _PAGE):
            page = suspects[start : start + _PAGE]
            for wanted, held in zip(load_stored(theirs, page), load_stored(ours, page), strict=True):
                if wanted.document.text == held.document.text and not (same_spans and wanted.spans != held.spans):
                    del keys[wanted.document.id]
        changed = tuple(sorted(keys, key=keys.__getitem__))  # documents are listed in the order of their keys
        sources = source_rows(theirs) != source_rows(ours)
        return Differences(changed, tuple(gone), sources, newest_id(theirs, "chunk"), document_count(theirs))


def mirror(
    source: Store,
    target: OpenCollection,
    *,
    same_spans: bool,
    same_vectors: bool,
    on_progress: OnProgress = lambda done, total: None,
) -> Copied:
    """One pass: bring the target to where the source was when the pass began. Every batch of it is durable.

    Args:
        same_spans: take the passages as the source has them; else the target's chunker cuts the texts.
        same_vectors: both have the same embedder, so the source's vectors may be used.

    Raises:
        EmbedderError: the embedder failed; what was written stays.
    """
    found = find_differences(source, target.record, same_spans=same_spans)
    if found.gone:
        target.delete_documents(found.gone)
    lookups = [target.known_vectors, *([_vectors_of(source)] if same_vectors else [])]
    done, embedded, reused = found.total - len(found.changed), 0, 0
    on_progress(done, found.total)
    for batch, count in _batches(source, target, found.changed, same_spans=same_spans):
        made = prepare_documents(
            [chunked for chunked, _ in batch], target.embedder.embed_passages, target.manifest.embedder, *lookups
        )
        target.write_batch([Put(item, source_id) for item, (_, source_id) in zip(made.documents, batch, strict=True)])
        embedded += made.embedded
        reused += made.reused
        done += count
        on_progress(done, found.total)
    if found.sources:
        copy_sources(source, target.record)
    remember(target.record, source, found.mark)
    return Copied(len(found.changed), len(found.gone), embedded, reused)


_Work = tuple[Chunked, str]
"""A document to be written, and its source."""


def _batches(
    source: Store, target: OpenCollection, document_ids: tuple[str, ...], *, same_spans: bool
) -> Iterator[tuple[list[_Work], int]]:
    """(documents, how many ids they stand for), in portions of some hundred passages."""
    batch: list[_Work] = []
    chunks = count = 0
    for start in range(0, len(document_ids), _PAGE):
        page = document_ids[start : start + _PAGE]
        with source.read() as connection:
            found = {stored.document.id: stored for stored in load_stored(connection, page)}
        count += len(page) - len(found)  # deleted meanwhile
        for stored in (found[identifier] for identifier in page if identifier in found):
            spans = stored.spans if same_spans else tuple(target.chunker(stored.document.text))
            batch.append((Chunked(stored.document, spans), stored.source_id))
            chunks += len(spans)
            count += 1
            if chunks >= _BATCH_CHUNKS:
                yield batch, count
                batch, chunks, count = [], 0, 0
    if batch or count:
        yield batch, count


def _vectors_of(source: Store) -> KnownVectors:
    def look_up(hashes: Collection[str]) -> Mapping[str, Vectors]:
        with source.read() as connection:
            return known_vectors(connection, hashes)

    return look_up


_Row = tuple[Any, ...]


def _merged(
    theirs: sqlite3.Connection, ours: sqlite3.Connection, mark: int
) -> Iterator[tuple[str, _Row | None, _Row | None]]:
    """(document id, the source's row, the target's row), by id; a row ends with the document's key in its own record
    and whether its text must be looked at.

    A document without chunks cannot show by them that it is old, so its text is always looked at.
    """
    sql = (
        "SELECT d.id, d.source_id, d.uri, d.title, d.content_hash, d.metadata, d.key, "
        "coalesce((SELECT max(c.id) FROM chunks c WHERE c.document_key = d.key), ?1 + 1) > ?1 "
        "FROM documents d ORDER BY d.id"
    )
    left, right = theirs.execute(sql, (mark,)), ours.execute(sql, (mark,))
    here, there = left.fetchone(), right.fetchone()
    while here is not None or there is not None:
        if there is None or (here is not None and here[0] < there[0]):
            yield here[0], here, None
            here = left.fetchone()
        elif here is None or there[0] < here[0]:
            yield there[0], None, there
            there = right.fetchone()
        else:
            yield here[0], here, there
            here, there = left.fetchone(), right.fetchone()


def _mark(target: Store, source: Store) -> int | None:
    """The newest chunk of the source that the target has seen; None if it never was level with it."""
    noted = json.loads(target.meta(MIRRORS) or "{}")
    return int(noted["chunk"]) if noted.get("record") == collection_id(source) else None


def copy_sources(source: Store, target: Store) -> None:
    """Make the target's rows about sources those of the source, and have it know the same origins."""
    with source.read() as connection:
        wanted = {row["id"]: row for row in source_rows(connection)}
        origins = load_origins(connection)
    with target.write() as connection:
        add_origins(connection, origins)
        held = {row["id"]: row for row in source_rows(connection)}
        drop_sources(connection, held.keys() - wanted.keys())
        put_source_rows(connection, [row for identifier, row in wanted.items() if held.get(identifier) != row])
