"""Jobs: begun on a collection, listed, followed, cancelled and tried again."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.http.deps import Searcher, Server, Writer
from thresher.api.http.lists import After, Limit, Page, page_of
from thresher.api.http.streaming import MEDIA_TYPE, LastEventId, event_stream, last_event_id
from thresher.api.operations.handing_over import origins_to_sync
from thresher.api.service.jobs.views import JobModel, Kind, Status
from thresher.corpus.chunker import load_chunker

router = APIRouter(prefix="/v1", tags=["jobs"])

Key = Annotated[str | None, Header(description="Sent again, it gets the same job again.")]

_STREAM = (
    'event: job.created\nid: 1\ndata: {"job":{"id":"job_5d0c1b2a3f4e","status":"queued"}}\n\n'
    'event: job.progress\nid: 3\ndata: {"job":{"id":"job_5d0c1b2a3f4e","status":"running"}}\n\n'
    'event: job.succeeded\nid: 4\ndata: {"job":{"id":"job_5d0c1b2a3f4e","status":"succeeded"}}\n\n'
)


class SyncBody(BaseModel):
    """What to read again. Where from is what the operator had read before; no request names it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [{}, {"source_id": "letters/1931.md"}]}
    )

    source_id: str | None = Field(
        None,
        max_length=4_000,
        description="Only where this source came from; left out, all that the collection was read from.",
    )


class CompactBody(BaseModel):
    """How to rewrite the files."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [{}, {"erase": True}]}
    )

    erase: bool = Field(False, description="Keep searches waiting meanwhile, so that nothing can be in the way.")


class ReindexBody(BaseModel):
    """What to change; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [{"embedder": "wordllama"}]}
    )

    embedder: str | None = Field(
        None,
        max_length=1_000,
        description="What is to make its vectors: minilm, wordllama, or what the server's settings name.",
    )
    chunker: str | None = Field(
        None, max_length=100, description="How texts are to be cut: structure-1 or structure-1:TOKENS."
    )


@router.post("/collections/{collection}/sync", status_code=202)
def sync_collection(
    collection: str,
    response: Response,
    caller: Writer,
    server: Server,
    body: SyncBody | None = None,
    idempotency_key: Key = None,
) -> JobModel:
    """Read again what the operator had read into the collection: new and changed files come, deleted ones go.

    What was put or uploaded stays as it is.
    """
    source_id = body.source_id if body else None
    with server.registry.lease(caller.collection(collection), "sync") as opened:
        origins_to_sync(opened, source_id)
    job = server.jobs.start(caller, "sync", collection, {"source_id": source_id}, idempotency_key=idempotency_key)
    return _begun(response, job)


@router.post("/collections/{collection}/verify", status_code=202)
def verify_collection(
    collection: str, response: Response, caller: Writer, server: Server, idempotency_key: Key = None
) -> JobModel:
    """Hold the record of a collection and its indexes against each other. The result has `ok` and `problems`."""
    return _begun(response, server.jobs.start(caller, "verify", collection, idempotency_key=idempotency_key))


@router.post("/collections/{collection}/rebuild", status_code=202)
def rebuild_collection(
    collection: str, response: Response, caller: Writer, server: Server, idempotency_key: Key = None
) -> JobModel:
    """Make the indexes of a collection anew from its record. Searches go on meanwhile."""
    return _begun(response, server.jobs.start(caller, "rebuild", collection, idempotency_key=idempotency_key))


@router.post("/collections/{collection}/compact", status_code=202)
def compact_collection(
    collection: str,
    response: Response,
    caller: Writer,
    server: Server,
    body: CompactBody | None = None,
    idempotency_key: Key = None,
) -> JobModel:
    """Rewrite the files of a collection without what was deleted, so that no byte of it stays."""
    arguments = {"erase": body.erase if body else False}
    job = server.jobs.start(caller, "compact", collection, arguments, idempotency_key=idempotency_key)
    return _begun(response, job)


@router.post("/collections/{collection}/reindex", status_code=202)
def reindex_collection(
    collection: str, body: ReindexBody, response: Response, caller: Writer, server: Server, idempotency_key: Key = None
) -> JobModel:
    """Give a collection another embedder or chunker. The old index serves until the new one is whole."""
    arguments = {
        "embedder": server.collections.embedder(body.embedder),
        "chunker": None if body.chunker is None else load_chunker(body.chunker).version,
    }
    job = server.jobs.start(caller, "reindex", collection, arguments, idempotency_key=idempotency_key)
    return _begun(response, job)


@router.get("/jobs")
def list_jobs(
    caller: Searcher,
    server: Server,
    limit: Limit = 20,
    after: After = None,
    status: Annotated[Status | None, Query(description="Only jobs that stand so.")] = None,
    kind: Annotated[Kind | None, Query(description="Only jobs of this kind.")] = None,
    collection: Annotated[str | None, Query(max_length=100, description="Only jobs on this collection.")] = None,
) -> Page[JobModel]:
    """List the jobs, newest first. Those that ended more than a week ago are forgotten."""
    wanted = {"status": status, "kind": kind, "collection": collection}
    data, more = server.jobs.page(
        caller, after=after, limit=limit, wanted={name: value for name, value in wanted.items() if value is not None}
    )
    return page_of(data, more, data[-1].id if data else "")


@router.get("/jobs/{job_id}")
def get_job(job_id: str, caller: Searcher, server: Server) -> JobModel:
    """Look at a job: how far it is, and what came of it."""
    return server.jobs.get(caller, job_id)


@router.get(
    "/jobs/{job_id}/events",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events; the last is `job.succeeded`, `job.failed` or `job.cancelled`.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": _STREAM}},
        }
    },
)
async def job_events(
    job_id: str,
    request: Request,
    caller: Searcher,
    server: Server,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="Only events past this number.")] = None,
    last_id: LastEventId = None,
) -> Any:
    """Follow a job. Each event has the whole job under `job`; of the past only the newest is kept.

    A client that comes back with the number of its last event misses nothing that matters: it gets how the job stands
    now, and then what comes.
    """
    return await event_stream(server.jobs.events(caller, job_id, last_event_id(request, after)))


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(job_id: str, caller: Writer, server: Server) -> JobModel:
    """Have a job stop: a queued one at once, a running one at its next step. What it has done stays.

    One that has ended stays as it is.
    """
    return await asyncio.to_thread(server.jobs.cancel, caller, job_id)


@router.post("/jobs/{job_id}/retry", status_code=202)
async def retry_job(job_id: str, caller: Writer, server: Server) -> JobModel:
    """Run a job that failed or was cancelled again. It passes over what was done before."""
    return await asyncio.to_thread(server.jobs.retry, caller, job_id)


def _begun(response: Response, job: JobModel) -> JobModel:
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
