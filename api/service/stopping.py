"""That the server is about to stop, and what is done until then."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from thresher.api.errors import ApiError

logger = logging.getLogger("thresher.api")

Hook = Callable[[float], Awaitable[object]]
"""Ends what it is about within so many seconds: lets it finish, or breaks it off so that nothing is lost."""


class Stopping:
    """False until `begin`. Asking is thread-safe: it only ever changes once.

    Args:
        grace_s: how long searches that run may still go on then.
    """

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._begun = False
        self._hooks: list[Hook] = []

    def __bool__(self) -> bool:
        return self._begun

    def add(self, hook: Hook) -> None:
        """Have `wind_down` do this, too, beside the others."""
        self._hooks.append(hook)

    def begin(self) -> None:
        """From now on nothing new is begun."""
        self._begun = True

    async def wind_down(self) -> None:
        """Begin to stop, and return when all that ran has ended, after the grace at the latest, or nearly so."""
        self.begin()
        for outcome in await asyncio.gather(*(hook(self.grace_s) for hook in self._hooks), return_exceptions=True):
            if isinstance(outcome, BaseException):
                logger.error("stopping went wrong: %s", outcome, exc_info=outcome)


def stopping_error(retry_after_s: float | None = None) -> ApiError:
    """The answer to who would begin something new: 503, to come back when another server may have taken its place."""
    return ApiError(
        503,
        "stopping",
        "the server is stopping; try again when it runs",
        type="api_error",
        retry_after_s=None if retry_after_s is None else max(1, math.ceil(retry_after_s)),
    )
