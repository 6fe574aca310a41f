"""Searches that were started: found again, followed, cancelled, deleted, and looked into."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.responses import HTMLResponse

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.lists import After, Limit, Page, cursor, page_of, read_cursor
from thresher.api.http.streaming import EVENT_STREAM, LastEventId, event_stream, last_event_id
from thresher.api.schema import SearchResponse
from thresher.api.service.searching.store import Row

router = APIRouter(prefix="/v1/searches", tags=["search"])

_TRACE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The trajectory, or a page that shows it.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/html": {"schema": {"type": "string"}}},
    }
}


class SearchSummary(BaseModel):
    """A search as a list shows it; `GET /v1/searches/{id}` has the rest. `results` is how many it returned."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["search"] = "search"
    status: Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
    query: str
    collections: list[str]
    background: bool
    created_at: int
    stop_reason: str | None
    sufficient: bool | None
    results: int


class Deleted(BaseModel):
    """That something is gone."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["search.deleted"] = "search.deleted"
    deleted: Literal[True] = True


@router.get("")
async def list_searches(
    caller: Searcher, server: Server, limit: Limit = 20, after: After = None
) -> Page[SearchSummary]:
    """Your searches, newest first."""
    before = None if after is None else read_cursor(after, float, str)
    rows = server.searches.page(caller, limit=limit + 1, before=before)
    shown, more = rows[:limit], len(rows) > limit
    following = cursor(shown[-1].created, shown[-1].id) if more else ""
    return page_of([_summary(row) for row in shown], more, following)


@router.get("/{search_id}")
async def get_search(search_id: str, caller: Searcher, server: Server) -> SearchResponse:
    """A search as it stands: queued, running, or how it ended and what it found."""
    return server.searches.get(caller, search_id)


@router.delete("/{search_id}")
async def delete_search(search_id: str, caller: Searcher, server: Server) -> Deleted:
    """Forget a search with its trace, its feedback and its collected record; one that runs is cancelled first.

    Of a search that the server remembers no more, but has collected, the record is erased.
    """
    await server.searches.delete(caller, search_id)
    return Deleted(id=search_id)


@router.post("/{search_id}/cancel")
async def cancel_search(search_id: str, caller: Searcher, server: Server) -> SearchResponse:
    """End a search with what it has found so far. One that has ended stays as it is."""
    return await server.searches.cancel(caller, search_id)


@router.get("/{search_id}/events", response_class=Response, responses=EVENT_STREAM)
async def search_events(
    search_id: str,
    request: Request,
    caller: Searcher,
    server: Server,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="Events up to this one are not wanted.")] = None,
    last_id: LastEventId = None,
) -> Response:
    """The events of a search: those that were, and those to come until it ends.

    Send the id of the last event that you have as the header `Last-Event-ID`, or as `after`, to go on from there.
    """
    return await event_stream(server.searches.events(caller, search_id, last_event_id(request, after)))


@router.get("/{search_id}/trace", response_class=Response, responses=_TRACE)
async def search_trace(
    search_id: str,
    caller: Searcher,
    server: Server,
    format: Annotated[Literal["json", "html"], Query(description="json, or a page to look at.")] = "json",
) -> Response:
    """Everything that a search did: its turns, calls, passages and edits."""
    trajectory, answer = await server.searches.trace(caller, search_id)
    if format == "json":
        return Response(trajectory.model_dump_json(), media_type="application/json")
    from thresher.api.tracing.page import trace_page
    from thresher.api.tracing.view import read_trace

    page = await asyncio.to_thread(lambda: trace_page(read_trace(trajectory, answer), server.settings.prices()))
    return HTMLResponse(page)


def _summary(row: Row) -> SearchSummary:
    return SearchSummary.model_validate(
        {
            "id": row.id,
            "status": row.status,
            "query": row.query,
            "collections": list(row.collections),
            "background": row.background,
            "created_at": int(row.created),
            "stop_reason": row.stop_reason,
            "sufficient": row.sufficient,
            "results": row.results,
        }
    )
