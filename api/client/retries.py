"""When a request is sent again, and after how long. No input or output: a client carries out the steps."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from thresher.api.client.errors import ConnectionFailed, RequestTimeout, ThresherError, error_of

if TYPE_CHECKING:
    from thresher.api.client.calls import Call

_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    Attributes:
        limit: how often one request is sent again at most; 0 for never.
        first_s: the wait before the first of them, in seconds; it doubles each time.
        longest_s: the longest wait. Where the server asks for a longer one, its error is raised at once.
    """

    limit: int = 3
    first_s: float = 0.5
    longest_s: float = 30.0

    def wait(self, again: int, error: ThresherError) -> float | None:
        """Seconds to wait before sending for the `again`-th time, from 1; None for: give up.

        Never less than the server asks for. The rest is spread at random, so that clients that were refused together
        do not come back together.
        """
        if again > self.limit:
            return None
        ceiling = min(self.first_s * 2.0 ** (again - 1), self.longest_s)
        asked = error.retry_after or 0.0
        if asked > self.longest_s:
            return None
        return max(asked, ceiling / 2) + random.uniform(0, ceiling / 2)


@dataclass(frozen=True, slots=True)
class Wait:
    """A step: wait that long."""

    seconds: float


Reply = httpx.Response | httpx.RequestError
"""What became of a request that was sent."""


def exchange(call: Call[Any], retries: Retries) -> Generator[Call[Any] | Wait, Reply | None, httpx.Response]:
    """The steps of one call: yields what to send or how long to wait, is sent what came back, returns the response.

    Raises:
        ThresherError: the server refuses, or cannot be reached, and another try is not safe, not worth it, or one
            too many.
    """
    again = 0
    while True:
        reply = yield call
        assert reply is not None
        if isinstance(reply, httpx.Response) and reply.is_success:
            return reply
        error = error_of(reply) if isinstance(reply, httpx.Response) else unreachable(reply)
        again += 1
        seconds = retries.wait(again, error) if worth_it(call, reply) else None
        if seconds is None:
            raise error from (reply if isinstance(reply, httpx.RequestError) else None)
        yield Wait(seconds)


def worth_it(call: Call[Any], reply: Reply) -> bool:
    """Whether to send it again: it may succeed then, and cannot do twice what was meant once."""
    if isinstance(reply, httpx.Response):
        # Too many requests are turned away before anything is done.
        return reply.status_code == 429 or (reply.status_code == 503 and call.repeatable)
    if isinstance(reply, _NOTHING_SENT):
        return True
    # Who waited in vain for long would only do so again.
    return call.repeatable and isinstance(reply, httpx.NetworkError | httpx.RemoteProtocolError)


def unreachable(error: httpx.RequestError) -> ConnectionFailed:
    """The exception for a request that got no whole response."""
    try:
        url = error.request.url
        place = f"{url.scheme}://{url.netloc.decode('ascii')}"
    except RuntimeError:  # httpx has not said which request it was
        place = "the server"
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeout(f"no response from {place} in time ({said}): give more timeout, or start in background")
    return ConnectionFailed(f"cannot talk to {place}: {said}; is `thresher serve` running there?")
