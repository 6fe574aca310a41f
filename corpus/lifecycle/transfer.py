"""Export and import: a collection as one portable text file, and back, into this or any other collection.

The file (format 1) is JSON Lines in UTF-8, compressed by gzip if its name ends in `.gz`:

- a header: `{"format": "thresher-export", "version": 1, "created": …, "name": …, "embedder": {"spec", "dimension",
  "revision"}, "chunker": …, "vectors": true | false, "documents": n, "sources": n}`;
- one line a document, by id: `{"type": "document", "id", "uri", "title", "text", "metadata", "source", "hash"}`, and in
  a file with vectors `"spans": [[start, end], …]` (characters of the text) and `"vectors"`: base64 of little-endian
  float32, one row of `dimension` numbers a span;
- one line a source, by id, with the columns of the record: `{"type": "source", "id", "root", …}`;
- a last line: `{"type": "end", "documents": n, "sources": n}`, by which a file that was cut off is told.

Only `type`, `id` and `text` of a document are required of a file that somebody else wrote. Whoever edits a document's
line should leave its `hash` out: it tells the next ingestion that the document is as it was.
"""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import embedding_hash, embedding_input
from thresher.corpus.errors import TransferError
from thresher.corpus.ingestion.preparing import Chunked, prepare_documents
from thresher.corpus.lifecycle.transfer_file import FORMAT, VERSION, Header, Line, check_file, read_lines, writing
from thresher.corpus.loaders.base import content_hash
from thresher.corpus.record.batch import Put
from thresher.corpus.record.documents import document_count, vectors_in_order
from thresher.corpus.record.sources import put_source_rows, source_rows
from thresher.corpus.record.stored import StoredDocument, load_stored
from thresher.corpus.record.values import storable

__all__ = ["FORMAT", "VERSION", "ExportReport", "ImportReport", "export_collection", "import_collection"]

_PAGE = 64
_BATCH_CHARACTERS = 250_000
_BATCH_LINES = 512

OnProgress = Callable[[int, int], None]
"""Called with (documents done, documents in all)."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote. `bytes` is the size of the file."""

    documents: int
    sources: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        documents: in the file; `unchanged` of them the collection had already.
        embedded: passages that the embedder computed; `reused` those whose vector was in the file or known.
        vectors_unused: why the vectors that the file has were of no use; None if they were used, or there are none.
    """

    documents: int
    unchanged: int
    sources: int
    chunks: int
    embedded: int
    reused: int
    seconds: float
    vectors_unused: str | None = None


def export_collection(
    collection: Collection, file: Path, *, vectors: bool = False, overwrite: bool = False
) -> ExportReport:
    """Write everything that a collection holds, as of one moment, to a file; reads and writes go on meanwhile.

    The file gets its name when it is complete. Two exports of the same content differ in the header's `created` only.

    Args:
        vectors: also the passages and their vectors, so that an import with the same embedder computes nothing.
        overwrite: replace the file if it is there.

    Raises:
        TransferError: the file is there, or lies inside the collection.
        StorageFull, CollectionUnavailable: it cannot be written; nothing is left of it.
    """
    started = time.monotonic()
    file = Path(file)
    if file.resolve().is_relative_to(collection.path.resolve()):
        raise TransferError(f"{file} lies inside the collection's own directory: choose a place outside")
    if not overwrite and file.exists():
        raise TransferError(f"{file} exists; name another file, or overwrite it (--overwrite)")
    manifest = collection.manifest
    with collection.record.read() as connection, writing(file) as out:
        sources = [{"type": "source", **row} for row in source_rows(connection)]
        header = Header(
            name=manifest.name,
            created=time.time(),
            embedder=asdict(manifest.embedder),
            chunker=manifest.chunker,
            vectors=vectors,
            documents=document_count(connection),
            sources=len(sources),
        )
        out(header.fields())
        for stored in _stored(connection):
            line = _document_line(stored)
            if vectors:
                line["spans"] = [[span.start, span.end] for span in stored.spans]
                rows = _rows(connection, stored.document.id, manifest.embedder.dimension)
                line["vectors"] = base64.b64encode(rows.astype("<f4").tobytes()).decode()
            out(line)
        for source in sources:
            out(source)
        out({"type": "end", "documents": header.documents, "sources": header.sources})
    return ExportReport(header.documents, header.sources, file.stat().st_size, time.monotonic() - started)


def import_collection(collection: Collection, file: Path, on_progress: OnProgress | None = None) -> ImportReport:
    """Put every document of an exported file into a collection: inserted, or replaced whole if the id is there.

    The whole file is checked first, so one that is cut off or foreign changes nothing. What is unchanged is left alone,
    so an import that was interrupted goes on where it was. Nothing that the file does not name is touched. The file's
    vectors are used if it comes from the same embedder and chunker as the collection has; otherwise its texts are cut
    and embedded here.

    Args:
        on_progress: called with (documents done, documents in all).

    Raises:
        TransferError: the file is not a complete export; names the line. Nothing was changed.
        CollectionMismatch: this release does not have the collection's chunker; has the command that changes it.
        EmbedderError: what was written stays; the next run goes on from there.
    """
    started = time.monotonic()
    file = Path(file)
    run = _Import(collection, check_file(file))
    with collection.bulk():
        for batch in _batches(read_lines(file), run.sources):
            run.put(batch)
            if on_progress is not None:
                on_progress(run.done, run.header.documents)
    with collection.record.write() as connection:  # last: a source that counts as indexed must have its documents
        put_source_rows(connection, [line.fields for line in run.sources])
    return ImportReport(
        documents=run.done,
        unchanged=run.unchanged,
        sources=len(run.sources),
        chunks=run.chunks,
        embedded=run.embedded,
        reused=run.reused,
        seconds=time.monotonic() - started,
        vectors_unused=run.misfit if run.header.vectors else None,
    )


class _Import:
    """One run: what it has done so far."""

    def __init__(self, collection: Collection, header: Header) -> None:
        self.header = header
        self.sources: list[Line] = []
        self.done = self.unchanged = self.chunks = self.embedded = self.reused = 0
        self._collection = collection
        self._chunker = collection.chunker
        self.misfit = _misfit(header, collection)

    def put(self, batch: list[_Item]) -> None:
        """Write what the collection does not have as it is in the file."""
        with self._collection.record.read() as connection:
            held = {stored.document.id: stored for stored in load_stored(connection, [i.document.id for i in batch])}
        fresh = [changed for item in batch if (changed := _changed(item, held.get(storable(item.document.id))))]
        ready = [_prepared(item) for item in fresh if self._is_ready(item)]
        made = prepare_documents(
            [
                Chunked(item.document, tuple(self._chunker(item.document.text)))
                for item in fresh
                if not self._is_ready(item)
            ],
            self._collection.embedder.embed_passages,
            self._collection.manifest.embedder,
            self._collection.known_vectors,
        )
        prepared = {document.document.id: document for document in (*ready, *made.documents)}
        self._collection.write_batch([Put(prepared[item.document.id], item.source_id) for item in fresh])
        self.done += len(batch)
        self.unchanged += len(batch) - len(fresh)
        self.chunks += sum(len(document.spans) for document in prepared.values())
        self.embedded += made.embedded
        self.reused += made.reused + sum(len(document.spans) for document in ready)

    def _is_ready(self, item: _Item) -> bool:
        return self.misfit is None and item.vectors is not None


def _misfit(header: Header, collection: Collection) -> str | None:
    """Why vectors of the file cannot be those of the collection; None if they can."""
    manifest = collection.manifest
    here = asdict(manifest.embedder)
    if header.embedder != here:
        theirs, ours = (str(embedder.get("spec")) for embedder in (header.embedder, here))
        if theirs != ours:
            return f"they are of the embedder {theirs}, the collection has {ours}"
        return f"they are of another revision or dimension of the embedder {ours}"
    if header.chunker != manifest.chunker:
        return f"they are of the chunker {header.chunker}, the collection has {manifest.chunker}"
    return None


@dataclass(frozen=True, slots=True)
class _Item:
    document: Document
    source_id: str
    spans: tuple[Span, ...]
    vectors: Vectors | None


def _batches(lines: Iterator[Line], sources: list[Line]) -> Iterator[list[_Item]]:
    """Documents in portions of some hundred passages; the lines of sources are set aside in `sources`."""
    batch: list[_Item] = []
    size = 0
    for line in lines:
        if line.kind == "source":
            sources.append(line)
            continue
        batch.append(_item(line.fields))
        size += len(line.fields["text"])
        if size >= _BATCH_CHARACTERS or len(batch) >= _BATCH_LINES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _item(fields: dict[str, Any]) -> _Item:
    document = Document(
        fields["id"], fields["uri"], fields["title"], fields["text"], fields["metadata"], fields["hash"]
    )
    spans = tuple(Span(start, stop) for start, stop in fields.get("spans", ()))
    return _Item(document, fields["source"], spans, fields.get("vectors"))


def _changed(item: _Item, held: StoredDocument | None) -> _Item | None:
    """The item if the collection must write it, else None."""
    if held is None:
        return item
    new, old = item.document, held.document
    if new == replace(old, id=new.id) and item.source_id == held.source_id:
        return None
    if new.content_hash == old.content_hash and new.text != old.text:
        # Somebody edited the line but not its hash, by which the next ingestion would take it for the original.
        digest = content_hash(uri=new.uri, title=new.title, text=new.text, metadata=new.metadata)
        return replace(item, document=replace(new, content_hash=digest))
    return item


def _prepared(item: _Item) -> PreparedDocument:
    document, spans = item.document, item.spans
    assert item.vectors is not None
    texts = (embedding_input(document.title, document.text[span.start : span.end]) for span in spans)
    return PreparedDocument(document, spans, tuple(embedding_hash(text) for text in texts), item.vectors)


def _document_line(stored: StoredDocument) -> dict[str, Any]:
    document = stored.document
    return {
        "type": "document",
        "id": document.id,
        "uri": document.uri,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
        "source": stored.source_id,
        "hash": document.content_hash,
    }


def _stored(connection: sqlite3.Connection) -> Iterator[StoredDocument]:
    """Every document, by id, without holding more than a page of them."""
    after = ""
    while True:
        page = [
            row[0]
            for row in connection.execute("SELECT id FROM documents WHERE id > ? ORDER BY id LIMIT ?", (after, _PAGE))
        ]
        if not page:
            return
        yield from load_stored(connection, page)
        after = page[-1]


def _rows(connection: sqlite3.Connection, document_id: str, dimension: int) -> Vectors:
    """Vectors of a document's passages in order, shape (passages, dimension)."""
    ids = [
        row[0]
        for row in connection.execute(
            "SELECT c.id FROM chunks c JOIN documents d ON d.key = c.document_key WHERE d.id = ? ORDER BY c.position",
            (document_id,),
        )
    ]
    return vectors_in_order(connection, ids, dimension)
