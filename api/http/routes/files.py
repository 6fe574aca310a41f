"""`POST /v1/collections/{collection}/files`: files are taken in, and a job reads them."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from starlette.requests import ClientDisconnect

from thresher.api.http.deps import Server, Writer
from thresher.api.http.multipart import MAX_FILES, receive_files
from thresher.api.service.jobs.jobs import new_job_id
from thresher.api.service.jobs.kinds import INGEST
from thresher.api.service.jobs.spool import Spool
from thresher.api.service.jobs.views import JobModel

router = APIRouter(prefix="/v1/collections/{collection}", tags=["jobs"])

PATH = re.compile(r"/v1/collections/[^/]+/files")
"""Where bodies may be as large as uploads."""

_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "files": {
                        "type": "array",
                        "items": {"type": "string", "format": "binary"},
                        "minItems": 1,
                        "maxItems": MAX_FILES,
                        "description": "Each a part of its own, named `files`, with a file name.",
                    }
                },
                "required": ["files"],
                "additionalProperties": False,
            }
        }
    },
}


@router.post("/files", status_code=202, openapi_extra={"requestBody": _BODY})
async def upload_files(
    collection: str,
    request: Request,
    response: Response,
    caller: Writer,
    server: Server,
    idempotency_key: Annotated[str | None, Header(description="Sent again, it gets the same job again.")] = None,
) -> JobModel:
    """Upload files and have a job read them. A file of the same name replaces what an earlier one brought.

    Of a name only the last part counts; of two files with one name in one request, the second gets a number. Documents
    of an upload are removed by a request and by nothing else: no sync takes them away.
    """
    server.registry.require(caller.collection(collection))
    server.jobs.check_room(caller)
    job_id = new_job_id()
    spool = await asyncio.to_thread(Spool, caller.tenant, job_id)
    try:
        await receive_files(request, spool)
        job = await asyncio.to_thread(
            server.jobs.start,
            caller,
            INGEST,
            collection,
            {"files": spool.names},
            job_id=job_id,
            idempotency_key=idempotency_key,
            content=spool.digest,
        )
    except ClientDisconnect:  # nobody is left to be told
        await asyncio.to_thread(spool.discard)
        return Response(status_code=499)  # type: ignore[return-value]
    except BaseException:
        await asyncio.shield(asyncio.to_thread(spool.discard))
        raise
    if job.id != job_id:  # the same request came before
        await asyncio.to_thread(spool.discard)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
