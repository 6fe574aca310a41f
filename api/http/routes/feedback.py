"""`POST /v1/searches/{id}/feedback`."""

from __future__ import annotations

from fastapi import APIRouter

from thresher.api.http.deps import Searcher, Server
from thresher.api.service.searching.feedback import FeedbackBody, FeedbackReceipt

router = APIRouter(prefix="/v1", tags=["search"])


@router.post("/searches/{search_id}/feedback", status_code=201)
async def give_feedback(search_id: str, body: FeedbackBody, caller: Searcher, server: Server) -> FeedbackReceipt:
    """Say how good a search was, and which of its passages were of use. It is kept to learn from."""
    return server.searches.add_feedback(caller, search_id, body)
