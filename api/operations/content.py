"""What goes into a collection and out of it again: `ingest`, `sync`, `remove`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict

from pydantic import Field

from thresher.api.opening import Making
from thresher.api.operations.base import Document, Operation, Reporter, Request, Target, Text
from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.loaders import ParserProcess


class WriteRequest(Request):
    """What every operation that may make the collection is told; see `Making`."""

    embedder: str | None = None
    chunker: str | None = None
    default_embedder: str = "minilm"
    default_chunker: str = CHUNKER_VERSION

    def making(self) -> Making:
        """How the collection is made, or must have been made."""
        return Making(self.embedder, self.chunker, self.default_embedder, self.default_chunker)


class ReadingRequest(WriteRequest):
    """How origins are read: `ocr` also pictures and scans, `ray` by the cluster at that address."""

    ocr: bool = False
    ray: str | None = None


@contextmanager
def parsing(*, ocr: bool) -> Iterator[ParserProcess | None]:
    """The process that parses, where it is not the usual one."""
    if not ocr:
        yield None
        return
    with closing(ParserProcess(ocr=True)) as parser:
        yield parser


class IngestRequest(ReadingRequest):
    """Read origins into the collection."""

    origins: list[Text] = Field(min_length=1)


class SyncRequest(ReadingRequest):
    """Make the collection mirror an origin. `allow_empty`: one without files means that everything was deleted."""

    origin: Text
    allow_empty: bool = False


class RemoveRequest(Request):
    """Remove documents, all of them or none."""

    document_ids: list[Text] = Field(min_length=1)


def _ingest(target: Target, request: IngestRequest, reporter: Reporter) -> Document:
    with parsing(ocr=request.ocr) as parser, target.open_or_create(request.making()) as opened:
        report = ingest(opened, request.origins, on_progress=reporter.on_ingest, parser=parser, ray=request.ray)
    return _ingestion(report, target.name)


def _sync(target: Target, request: SyncRequest, reporter: Reporter) -> Document:
    with parsing(ocr=request.ocr) as parser, target.open_or_create(request.making()) as opened:
        report = sync(
            opened,
            request.origin,
            allow_empty=request.allow_empty,
            on_progress=reporter.on_ingest,
            parser=parser,
            ray=request.ray,
        )
    return _ingestion(report, target.name)


def _ingestion(report: IngestReport, name: str) -> Document:
    counts = {str(state): count for state, count in report.counts.items() if count}
    return {"object": "ingestion", "collection": name, **asdict(report), "counts": counts}


def _remove(target: Target, request: RemoveRequest, reporter: Reporter) -> Document:
    name = target.name
    wanted = list(dict.fromkeys(request.document_ids))
    with target.open() as opened:
        documents = {document_id: opened.document(document_id) for document_id in wanted}
        unknown = [document_id for document_id, document in documents.items() if document is None]
        if unknown:
            raise DocumentNotFound(
                f"no document {', '.join(map(repr, unknown))} in collection {name!r}, so nothing was removed; "
                f"`thresher ls -c {name}` lists the ids"
            )
        removed = opened.delete_documents(wanted)
        # A source that is left empty goes too: were it kept, the next ingestion would call its file unchanged.
        origins = {document.source_id for document in documents.values() if document is not None}
        emptied = [source_id for source_id in origins if next(opened.documents(source_id=source_id), None) is None]
        opened.remove_sources(emptied)
    return {"object": "removal", "collection": name, "removed": removed, "document_ids": wanted}


INGEST = Operation("ingest", IngestRequest, _ingest, single=True)
SYNC = Operation("sync", SyncRequest, _sync, single=True)
REMOVE = Operation("remove", RemoveRequest, _remove)
