"""Server-sent events: frames, keep-alive comments, and a stream that ends with its events or its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import Header, Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from thresher.api.errors import ApiError
from thresher.api.service.searching.log import Told

KEEP_ALIVE_S = 15.0
"""How long a stream may be silent before a comment says that it lives: proxies cut what is silent for longer."""

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Keep proxies from holding frames back, and everybody from keeping them."""

MEDIA_TYPE = "text/event-stream"

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The id of the last event that you have; `after` goes first.")
]
"""Declares the header that `last_event_id` reads."""

EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: frames of `event:`, `id:` and one line of JSON as `data:`.",
        "content": {
            MEDIA_TYPE: {
                "schema": {"type": "string"},
                "example": 'event: search.created\nid: 1\ndata: {"search_id":"search_4f0c","query":"harbour dues"}\n\n',
            }
        },
    }
}
"""How a route that streams says so in the OpenAPI document."""


def frame(told: Told) -> str:
    """One event as it goes over the wire. JSON on one line, ASCII only, so that no line break can stand in it."""
    data = json.dumps(told.data, separators=(",", ":"), default=_plain)
    return f"event: {told.type}\nid: {told.number}\ndata: {data}\n\n"


def _plain(model: BaseModel) -> Any:
    """A response in an event, which is made JSON of only where somebody listens."""
    return model.model_dump(mode="json")


def last_event_id(request: Request, after: int | None = None) -> int:
    """The number of the event that a client has had last: `?after=`, else its header `Last-Event-ID`, else 0.

    Raises:
        ApiError: 422, the header holds no number that this server has given.
    """
    if after is not None:
        return after
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        message = "Last-Event-ID must be the id of an event of this stream, a whole number; or leave it out"
        raise ApiError(422, "invalid_field", message, param="Last-Event-ID")
    return int(given)


async def event_stream(events: AsyncIterator[Told], *, keep_alive_s: float | None = None) -> EventStream:
    """The response that streams `events`. It waits for the first, so what fails before is an ordinary error.

    A client that goes away closes `events`.

    Raises:
        Exception: what `events` raises before its first event.
    """
    stream = EventStream(events, keep_alive_s or KEEP_ALIVE_S)
    try:
        await stream.begin()
    except BaseException:
        stream.end()
        raise
    return stream


class EventStream(StreamingResponse):
    """A response made of events; `event_stream` makes it."""

    def __init__(self, events: AsyncIterator[Told], keep_alive_s: float) -> None:
        super().__init__(self._frames(), media_type=MEDIA_TYPE, headers=HEADERS)
        self._events = events
        self._keep_alive_s = keep_alive_s
        self._next = asyncio.ensure_future(anext(events, None))

    async def begin(self) -> None:
        """Wait for the first event, or for the time of a keep-alive; raises what the events raise."""
        done, _ = await asyncio.wait([self._next], timeout=self._keep_alive_s)
        if done:
            self._next.result()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, until the events end or the client goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.end()

    def end(self) -> None:
        """Let go of the events. Nothing is awaited: whoever calls may be cancelled already."""
        self._next.cancel()
        closing = asyncio.ensure_future(_close(self._next, self._events))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    async def _frames(self) -> AsyncIterator[str]:
        while True:
            done, _ = await asyncio.wait([self._next], timeout=self._keep_alive_s)
            if not done:
                yield ": keep-alive\n\n"
                continue
            told = self._next.result()
            if told is None:
                return
            yield frame(told)
            self._next = asyncio.ensure_future(anext(self._events, None))


_closing: set[asyncio.Future[None]] = set()
"""Keeps what closes streams from being collected before it has."""


async def _close(pending: asyncio.Future[Any], events: AsyncIterator[Told]) -> None:
    await asyncio.wait([pending])
    if not pending.cancelled():
        pending.exception()
    close: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
    if close is not None:
        await close()
