"""`POST /v1/search`."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from thresher.api.config import Settings
from thresher.api.errors import ApiError
from thresher.api.http.deps import Searcher, Server
from thresher.api.http.models import REQUEST_FIELDS, SearchBody
from thresher.api.schema import SearchResponse, search_response
from thresher.api.traces import with_trace_saved
from thresher.engine.requests import SearchRequest

router = APIRouter(prefix="/v1", tags=["search"])


@router.post("/search")
async def search(body: SearchBody, request: Request, caller: Searcher, server: Server) -> SearchResponse:
    """Search a collection over several turns; answers with ranked evidence and how the search ended."""
    settings = server.settings
    name = caller.collection(_collection(body, settings))
    search_request = _search_request(body, settings)
    cancel = asyncio.Event()
    watcher = asyncio.create_task(_cancel_on_disconnect(request, cancel))
    try:
        async with server.registry.use(name) as engine:
            result = await engine.search(search_request, cancel=cancel)
    finally:
        watcher.cancel()
    if settings.save_traces:
        result = await asyncio.to_thread(with_trace_saved, result, name_place=False)
    return search_response(result, include_trace=body.include_trace)


async def _cancel_on_disconnect(request: Request, cancel: asyncio.Event) -> None:
    """End a search that nobody waits for any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    cancel.set()


def _collection(body: SearchBody, settings: Settings) -> str:
    _refuse_what_is_not_there(body)
    if body.collections is None:
        return settings.collection
    if len(body.collections) != 1:
        message = f"collections must name exactly one collection for now, got {len(body.collections)}"
        raise ApiError(422, "unsupported", message, param="collections")
    return body.collections[0]


def _refuse_what_is_not_there(body: SearchBody) -> None:
    """Say so at once where a field asks for something this release cannot do."""
    if body.sources is not None and body.sources != ["corpus"]:
        if not body.sources:
            raise ApiError(422, "invalid_field", 'sources is empty; leave it out, or send ["corpus"]', param="sources")
        message = 'no web provider is configured; send sources ["corpus"] or leave it out'
        if "web" not in body.sources:
            message = 'sources must be ["corpus"], each source once'
        raise ApiError(422, "unsupported", message, param="sources")
    for name, advice in _NOT_YET.items():
        if getattr(body, name):
            raise ApiError(422, "unsupported", f"{name} is not supported yet; {advice}", param=name)


_NOT_YET = {
    "stream": "send false; the response comes when the search has ended",
    "background": "send false, and bound the wait with deadline_s",
}


def _search_request(body: SearchBody, settings: Settings) -> SearchRequest:
    """The body's fields before the server's settings; a field that is null is not given."""
    return settings.search_request(body.query, **{name: getattr(body, name) for name in REQUEST_FIELDS})
