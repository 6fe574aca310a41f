"""`POST /v1/search`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.hanging_up import cancelled_with
from thresher.api.http.streaming import EVENT_STREAM, event_stream
from thresher.api.schema import SearchResponse
from thresher.api.service.searching.bodies import SearchBody
from thresher.api.service.searching.log import Told
from thresher.api.service.searching.running import Running

router = APIRouter(prefix="/v1", tags=["search"])

KEY = (
    "1 to 255 visible characters. The same key and body within 24 hours are the same search, also while it runs; it is "
    "not cancelled when its client hangs up."
)


@router.post(
    "/search",
    response_model=SearchResponse,
    responses={
        **EVENT_STREAM,
        202: {"model": SearchResponse, "description": "It goes on in the background; this is how it stands."},
    },
)
async def search(
    body: SearchBody,
    request: Request,
    caller: Searcher,
    server: Server,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Search over several turns; answers with ranked evidence and how the search ended.

    - Plain, the answer comes when the search has ended. A client that hangs up cancels it.
    - With `stream`, it is server-sent events as the search goes on; the last has the whole response as `response`.
    - With `background`, it is 202 and the search as it stands, which `GET /v1/searches/{id}` shows later. It goes on
      after a restart of the server, from its beginning.
    - With both, it is events that whoever was cut off can read on, at `GET /v1/searches/{id}/events`.
    """
    running = await server.searches.start(caller, body, idempotency_key=idempotency_key)
    request.state.objects["search_id"] = running.id
    attached = running.asked.background or idempotency_key is not None
    if body.stream:
        return await event_stream(_events(running, cancel=not attached))
    if running.asked.background:
        return _json(running.seen(), 202)
    if attached:
        return _json(await running.result())
    async with cancelled_with(request, running):
        return _json(await running.result())


def _json(response: SearchResponse, status: int = 200) -> Response:
    """It was checked when it was made; FastAPI would do so again."""
    return Response(response.model_dump_json(), status, media_type="application/json")


async def _events(running: Running, *, cancel: bool) -> AsyncIterator[Told]:
    """Its events; a listener that goes away ends the search, if nobody else can have it."""
    try:
        async for told in running.events():
            yield told
        if running.ended and not running.log.last:
            await running.result()  # raises why there was nothing to tell
    finally:
        if cancel:
            running.cancel()
