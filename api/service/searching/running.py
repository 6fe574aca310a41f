"""A search that runs, waits or has ended, as those see it who wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError, Problem
from thresher.api.schema import ErrorModel, SearchResponse
from thresher.api.service.searching.bodies import SearchBody
from thresher.api.service.searching.log import EventLog, Told

if TYPE_CHECKING:
    from thresher.api.service.releases.serving import Serving
    from thresher.api.service.searching.store import Row
    from thresher.engine.requests import SearchRequest

ATTEMPT = 1_000_000
"""What the numbers of events grow by when a search begins again: a listener who comes back misses nothing of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search is about.

    Attributes:
        collections: plain names.
        background: it goes on whoever listens, and after a restart.
        created: seconds since 1970.
        unit: what its user is dealt to an arm by (`thresher.api.service.releases.units`); "" for the search alone.
    """

    id: str
    tenant: str
    body: SearchBody
    request: SearchRequest
    collections: tuple[str, ...]
    background: bool
    created: float = field(default_factory=time.time)
    unit: str = ""


class Running:
    """One search. It belongs to the event loop that it was made in, and goes on whoever listens.

    Attributes:
        asked: what it is about.
        log: its events.
        stop: set to end it with what it has found.
        status: `queued`, `running`, or how it ended.
        cancelled: its caller wanted no more of it; else what stopped it is the server.
        idempotency_key: the key that stands for it.
        serving: the release that searches, once it has begun; None for a search without a policy.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        log: EventLog | None = None,
        on_cancel: Callable[[Running], None],
        idempotency_key: str | None = None,
    ) -> None:
        self.asked = asked
        self.id = asked.id
        self.log = log or EventLog()
        self.stop = asyncio.Event()
        self.status = "queued"
        self.cancelled = False
        self.idempotency_key = idempotency_key
        self.serving: Serving | None = None
        self._on_cancel = on_cancel
        self._outcome: asyncio.Future[SearchResponse] = asyncio.get_running_loop().create_future()
        self._response: SearchResponse | None = None

    def events(self, after: int = 0) -> AsyncIterator[Told]:
        """Its events past number `after`, as far as they are kept, then live; ends with the search."""
        return self.log.follow(after)

    async def result(self) -> SearchResponse:
        """What it found, once it has ended. Raises what it raised; whoever waits here can be cancelled alone."""
        return await asyncio.shield(self._outcome)

    async def over(self) -> None:
        """Wait until it has ended, however that is."""
        await asyncio.wait([self._outcome])

    def cancel(self) -> None:
        """End it with what it has found so far. Safe to call twice, and after its end."""
        if not self.ended:
            self.cancelled = True
            self.stop.set()
            self._on_cancel(self)

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self._outcome.done()

    def seen(self) -> SearchResponse:
        """How it stands now."""
        return self._response or unfinished(self.asked, self.status)

    def finish(self, response: SearchResponse) -> None:
        """It has ended, with a response."""
        self.status, self._response = response.status, response
        self._outcome.set_result(response)
        self.log.close()

    def fail(self, error: BaseException, response: SearchResponse) -> None:
        """It could not be run; `response` says so."""
        self.status, self._response = "failed", response
        self._outcome.set_exception(error)
        self._outcome.exception()  # nobody need wait for it
        self.log.close()


def unfinished(asked: Asked, status: str) -> SearchResponse:
    """A search that has no results yet."""
    return SearchResponse.model_validate({**_EMPTY, **_head(asked), "status": status})


def failed(asked: Asked, problem: Problem) -> SearchResponse:
    """A search that could not be run."""
    error = ErrorModel(type=problem.type, code=problem.code, message=problem.message, param=problem.param)
    return SearchResponse.model_validate(
        {**_EMPTY, **_head(asked), "status": "failed", "stop_reason": "error", "error": error}
    )


def with_head(response: SearchResponse, asked: Asked) -> SearchResponse:
    """A response that says which search it is of."""
    [*names] = asked.collections
    results = response.results
    if len(names) == 1:
        results = [result.model_copy(update={"collection": names[0]}) for result in results]
    return response.model_copy(update={**_head(asked), "results": results})


def _head(asked: Asked) -> dict[str, Any]:
    return {
        "id": asked.id,
        "query": asked.request.query,
        "collections": list(asked.collections),
        "created_at": int(asked.created),
        "background": asked.background,
    }


_EMPTY: dict[str, Any] = {
    "results": [],
    "citations": [],
    "stop_reason": None,
    "sufficient": None,
    "justification": None,
    "missing": [],
    "usage": {},
    "warnings": [],
    "notices": [],
}


def stored_response(row: Row) -> SearchResponse:
    """A search as it was kept when it ended, or as it stands where another server runs it."""
    if row.response is not None:
        return SearchResponse.model_validate_json(row.response)
    head = {
        "id": row.id,
        "query": row.query,
        "collections": list(row.collections),
        "created_at": int(row.created),
        "background": row.background,
        "status": row.status,
    }
    if row.problem is not None:
        head |= {"stop_reason": "error", "error": {k: v for k, v in row.problem.items() if k != "status"}}
    return SearchResponse.model_validate({**_EMPTY, **head})


def stored_error(row: Row) -> ApiError | None:
    """What a search that could not be run raised; None for any other."""
    if row.problem is None:
        return None
    told = row.problem
    return ApiError(told["status"], told["code"], told["message"], type=told["type"], param=told["param"])
