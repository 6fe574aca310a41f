"""What each kind of job does: an operation, and the request for it from what is kept of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thresher.api.operations.base import Operation, Request
from thresher.api.operations.care import COMPACT, REBUILD, VERIFY, CompactRequest, RebuildRequest, VerifyRequest
from thresher.api.operations.handing_over import RESYNC, UPLOAD, ResyncRequest, UploadRequest
from thresher.api.operations.reindexing import REINDEX, ReindexRequest
from thresher.api.service.jobs.spool import spool_folder
from thresher.api.service.jobs.store import JobRow

INGEST = "ingest"


@dataclass(frozen=True, slots=True)
class JobKind:
    """`request` gets the job and whether pictures are to be read, too."""

    operation: Operation[Any]
    request: Callable[[JobRow, bool], Request]


KINDS: dict[str, JobKind] = {
    INGEST: JobKind(
        UPLOAD, lambda row, ocr: UploadRequest(folder=str(spool_folder(row.tenant, row.id).absolute()), ocr=ocr)
    ),
    "sync": JobKind(RESYNC, lambda row, ocr: ResyncRequest(source_id=row.arguments.get("source_id"), ocr=ocr)),
    "verify": JobKind(VERIFY, lambda row, ocr: VerifyRequest()),
    "rebuild": JobKind(REBUILD, lambda row, ocr: RebuildRequest()),
    "compact": JobKind(COMPACT, lambda row, ocr: CompactRequest(erase=bool(row.arguments.get("erase")))),
    "reindex": JobKind(
        REINDEX,
        lambda row, ocr: ReindexRequest(embedder=row.arguments.get("embedder"), chunker=row.arguments.get("chunker")),
    ),
}
