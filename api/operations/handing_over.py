"""What a client of the server may have read: files that it sent, and again what the operator had read before.

Commands do not need these; no request of a client names a path or an address.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

from thresher.api.operations.base import Document, Operation, Reporter, Request, Target, Text
from thresher.api.operations.content import parsing
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Source, Status
from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.identity import location
from thresher.corpus.ingestion.origins import known_origins, parse_origin
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.uploads import ingest_uploads
from thresher.corpus.ingestion.walk import RootError

logger = logging.getLogger("thresher.api")

LISTED = 1_000
"""Sources that a result tells of one by one; first those that are worth a look."""

_UNREMARKABLE = (Status.INDEXED, Status.UNCHANGED)


class SourceUnknown(CorpusError):
    """No source of the collection has that id."""

    code = "source_not_found"


class NoOrigin(CorpusError):
    """Nothing tells what the collection, or one source of it, was read from."""

    code = "no_origin"


class UploadRequest(Request):
    """Read the files in `folder` as handed over. `ocr`: also pictures and scans."""

    folder: Text
    ocr: bool = False


class ResyncRequest(Request):
    """Read again what the collection was read from. `source_id`: only where that source came from."""

    source_id: Text | None = None
    ocr: bool = False


def _upload(target: Target, request: UploadRequest, reporter: Reporter) -> Document:
    with parsing(ocr=request.ocr) as parser, target.open() as opened:
        report = ingest_uploads(opened, Path(request.folder), on_progress=reporter.on_ingest, parser=parser)
    return _document(target.name, [report])


def _resync(target: Target, request: ResyncRequest, reporter: Reporter) -> Document:
    with parsing(ocr=request.ocr) as parser, target.open() as opened:
        origins = origins_to_sync(opened, request.source_id)
        reports: list[IngestReport] = []
        failure: RootError | None = None
        for origin in origins:
            try:
                reports.append(sync(opened, origin, on_progress=reporter.on_ingest, parser=parser))
            except RootError as error:  # one that is not there must not keep the others from being read
                logger.warning("%s: %s", target.name, error)
                failure = failure or error
        if failure is not None and not reports:
            raise failure
    unreadable = len(origins) - len(reports)
    return {**_document(target.name, reports), "origins": len(origins), "origins_unreadable": unreadable}


def origins_to_sync(collection: Collection, source_id: str | None) -> list[str]:
    """What a resync would read, as `parse_origin` takes it.

    Raises:
        SourceUnknown: the collection has no such source.
        NoOrigin: nothing is known of where it, or the collection, came from.
    """
    known = known_origins(collection)
    if source_id is None:
        if not known:
            raise NoOrigin(
                "nothing is known of what this collection was read from: put documents or files into it again, or have "
                "the operator run `thresher sync` on a folder or address once"
            )
        return known
    source = collection.source(source_id)
    if source is None:
        raise SourceUnknown(f"no source {source_id!r} in this collection; each document tells its `source_id`")
    for origin in known:
        if _covers(origin, source):
            return [origin]
    raise NoOrigin(f"nothing is known of what the source {source_id!r} was read from: send it again instead")


def _covers(origin: str, source: Source) -> bool:
    try:
        return parse_origin(origin).covers(location(source), source)
    except RootError:
        return False


def _document(name: str, reports: list[IngestReport]) -> Document:
    results = [result for report in reports for result in report.sources]
    counts: dict[str, int] = {}
    for result in results:
        counts[str(result.status)] = counts.get(str(result.status), 0) + 1
    listed = sorted(results, key=lambda result: result.status in _UNREMARKABLE)[:LISTED]
    return {
        "object": "ingestion",
        "collection": name,
        "counts": counts,
        "documents": sum(result.documents for result in results),
        "chunks": sum(result.chunks for result in results),
        "removed": sum(report.removed for report in reports),
        "embedded": sum(report.embedded for report in reports),
        "reused": sum(report.reused for report in reports),
        "seconds": sum(report.seconds for report in reports),
        "sources": [asdict(result) for result in listed],
        "sources_left_out": len(results) - len(listed),
    }


UPLOAD = Operation("upload", UploadRequest, _upload, single=True)
RESYNC = Operation("sync", ResyncRequest, _resync, single=True)
