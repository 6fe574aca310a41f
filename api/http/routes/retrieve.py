"""`POST /v1/retrieve` and `POST /v1/fetch`."""

from __future__ import annotations

from fastapi import APIRouter

from thresher.api.http.deps import Searcher, Server
from thresher.api.service.content.retrieval import FetchBody, FetchResponse, Retrieval, RetrieveBody, RetrieveResponse

router = APIRouter(prefix="/v1", tags=["retrieval"])


@router.post("/retrieve")
async def retrieve(body: RetrieveBody, caller: Searcher, server: Server) -> RetrieveResponse:
    """Find passages once: by meaning and words, or with a regular expression."""
    return await Retrieval(server.settings, server.registry).retrieve(caller, body)


@router.post("/fetch")
async def fetch(body: FetchBody, caller: Searcher, server: Server) -> FetchResponse:
    """Read a document's text, a stretch at a time.

    Where searches are collected, this counts as opening a result of the last one of the same key that returned it.
    """
    fetched = await Retrieval(server.settings, server.registry).fetch(caller, body)
    server.searches.note_fetched(caller, body.collection or server.settings.collection, body.document_id)
    return fetched
