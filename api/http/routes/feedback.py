"""`POST /v1/searches/{id}/feedback` and `POST /v1/searches/{id}/signals`."""

from __future__ import annotations

from fastapi import APIRouter

from thresher.api.http.deps import Searcher, Server
from thresher.api.service.collecting.bodies import SignalBody, SignalReceipt
from thresher.api.service.searching.feedback import FeedbackBody, FeedbackReceipt

router = APIRouter(prefix="/v1", tags=["search"])


@router.post("/searches/{search_id}/feedback", status_code=201)
async def give_feedback(search_id: str, body: FeedbackBody, caller: Searcher, server: Server) -> FeedbackReceipt:
    """Say how good a search was, and which of its passages were of use.

    It is kept beside the search. If that is collected to learn from, all but the comment is collected, too.
    """
    return server.searches.add_feedback(caller, search_id, body)


@router.post("/searches/{search_id}/signals", status_code=201)
async def give_signal(search_id: str, body: SignalBody, caller: Searcher, server: Server) -> SignalReceipt:
    """Say what the user did with the results of a search that is collected, to learn from.

    Of one that is not collected nothing is kept: `collected` is false then.
    """
    return server.searches.add_signal(caller, search_id, body)
