"""Documents that are handed over instead of read: upsert by id, with chunking and embedding.

They belong to a source that no file stands for, so no `sync` removes them. An id that another living source has (a
file, a page, documents put under another source id) stays with it: the document is refused, and nothing is lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, Metadata, Source, Status
from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.identity import PUT_ROOT
from thresher.corpus.ingestion.locks import taken_by_another, writer_locks
from thresher.corpus.ingestion.preparing import Chunked, Prepared, prepare_documents
from thresher.corpus.loaders.base import is_blank, make_document
from thresher.corpus.record.batch import Finish, Put, Step
from thresher.corpus.record.values import storable

SOURCE = "api"
BATCH_CHUNKS = 256
_BATCH_DOCUMENTS = 500
LONGEST_ID = 1_000


class SourceTaken(CorpusError):
    """The source id belongs to a file or page, whose next ingestion would delete what was put under it."""

    code = "source_taken"


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document as a caller has it.

    Attributes:
        id: unique in the collection; putting the same id again replaces the document.
        text: stored as it is; offsets of passages index it.
        uri: where a person finds it; None for an address made of the id.
    """

    id: str
    text: str
    title: str = ""
    uri: str | None = None
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that was not put, and why; what the collection had under its id is still there."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class PutReport:
    """What became of the documents.

    Attributes:
        written: ids of new and changed documents, in the order in which they came.
        unchanged: ids of those that the collection already had just so.
        refused: those that were not put, and why.
        chunks: passages written.
        embedded, reused: of those, how many were computed and how many had a known vector.
    """

    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    seconds: float = 0.0


def put_documents(collection: Collection, documents: Iterable[NewDocument], *, source_id: str = SOURCE) -> PutReport:
    """Insert documents, or replace those with the same id. When this returns they can be found.

    Works in batches, each of which is durable by itself: after an error, what came before is there, and putting the
    same documents again passes over it. Of two documents with one id, the later one stands.

    Args:
        source_id: what they belong to; `Collection.remove_sources` takes all of one source away.

    Raises:
        SourceTaken: the source id is a file's or a page's.
        EmbedderError: the embedder is down; earlier batches stay.
    """
    return _Putting(collection, source_id).run(documents)


class _Putting:
    def __init__(self, collection: Collection, source_id: str) -> None:
        self._collection = collection
        self._source_id = source_id
        self._chunker = collection.chunker
        self._written: list[str] = []
        self._unchanged: list[str] = []
        self._refused: list[Refusal] = []
        self._chunks = self._embedded = self._reused = 0

    def run(self, documents: Iterable[NewDocument]) -> PutReport:
        started = time.monotonic()
        self._check_source()
        batch: dict[str, Chunked] = {}
        chunks = 0
        for document in self._valid(documents):
            if document.id in batch:  # the later one is compared with the earlier one, so that must be written first
                self._put(batch)
                batch, chunks = {}, 0
            batch[document.id] = Chunked(document, tuple(self._chunker(document.text)))
            chunks += len(batch[document.id].spans)
            if chunks >= BATCH_CHUNKS or len(batch) >= _BATCH_DOCUMENTS:
                self._put(batch)
                batch, chunks = {}, 0
        self._put(batch)
        return PutReport(
            tuple(self._written),
            tuple(self._unchanged),
            tuple(self._refused),
            self._chunks,
            self._embedded,
            self._reused,
            time.monotonic() - started,
        )

    def _valid(self, documents: Iterable[NewDocument]) -> Iterator[Document]:
        for document in documents:
            problem = _problem(document)
            if problem is not None:
                self._refused.append(Refusal(str(document.id), problem))
                continue
            identifier = storable(document.id)
            yield make_document(
                identifier=identifier,
                uri=document.uri or f"urn:thresher:{quote(identifier, safe='')}",
                title=document.title,
                text=storable(document.text),
                metadata=dict(document.metadata),
            )

    def _put(self, batch: Mapping[str, Chunked]) -> None:
        """Embed outside every lock, then check the ids and write."""
        held = self._collection.document_hashes(list(batch))
        owners = self._collection.document_owners(list(batch))
        new = {
            name: item
            for name, item in batch.items()
            if held.get(name) != item.document.content_hash or owners.get(name) != self._source_id
        }
        self._unchanged += [name for name in batch if name not in new]
        if not new:
            return
        taken = taken_by_another(self._collection, dict.fromkeys(new, self._source_id))
        self._refuse(taken)
        prepared = prepare_documents(
            [item for name, item in new.items() if name not in taken],
            self._collection.embedder.embed_passages,
            self._collection.manifest.embedder,
            self._collection.known_vectors,
        )
        with writer_locks(self._collection).ids:
            self._check_source()
            names = [document.document.id for document in prepared.documents]
            taken = taken_by_another(self._collection, dict.fromkeys(names, self._source_id))
            self._refuse(taken)
            self._write(prepared, taken)

    def _write(self, prepared: Prepared, taken: Mapping[str, str]) -> None:
        steps: list[Step] = [
            Put(document, self._source_id) for document in prepared.documents if document.document.id not in taken
        ]
        if not steps:
            return
        if self._collection.source(self._source_id) is None:
            row = Source(self._source_id, PUT_ROOT, "", 0, time.time(), Status.INDEXED)
            kept = frozenset(info.id for info in self._collection.documents(source_id=self._source_id))
            steps.insert(0, Finish(row, kept))
        self._collection.write_batch(steps, at_once=True)
        written = [step.prepared for step in steps if isinstance(step, Put)]
        self._written += [document.document.id for document in written]
        self._chunks += sum(len(document.spans) for document in written)
        self._embedded += prepared.embedded
        self._reused += prepared.reused

    def _refuse(self, taken: Mapping[str, str]) -> None:
        self._refused += [
            Refusal(name, f"the id belongs to the source {owner!r}; use another id, or remove it there first")
            for name, owner in taken.items()
        ]

    def _check_source(self) -> None:
        row = self._collection.source(self._source_id)
        if row is not None and row.root != PUT_ROOT:
            raise SourceTaken(
                f"{self._source_id!r} is the source of {row.documents} documents read from {row.root}; "
                "put documents under another source id"
            )


def _problem(document: NewDocument) -> str | None:
    """Why a document cannot be put, or None. Values come from outside, so nothing is taken for granted."""
    checks: tuple[tuple[str, Any], ...] = (("id", document.id), ("text", document.text), ("title", document.title))
    for name, value in (*checks, ("uri", document.uri or "")):
        if not isinstance(value, str):
            return f"its {name} is not text but {type(value).__name__}"
    if not document.id.strip():
        return "its id is empty"
    if len(document.id) > LONGEST_ID:
        return f"its id is longer than {LONGEST_ID} characters"
    if is_blank(document.text):
        return "its text is empty"
    metadata: Any = document.metadata
    if not isinstance(metadata, Mapping):
        return "its metadata is not an object of names and values"
    for key, item in metadata.items():
        if not isinstance(key, str) or not key:
            return f"its metadata has the key {key!r}: keys must be text"
        if not isinstance(item, str | int | float):
            return f"its metadata {key!r} is {type(item).__name__}: values are text, numbers, true or false"
        if isinstance(item, float) and not math.isfinite(item):
            return f"its metadata {key!r} is {item}, for which JSON has no form: leave it out, or give it as text"
    return None
