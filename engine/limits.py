"""The outer limits of a search: a deadline and a way to cancel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from thresher.engine.requests import StopReason

T = TypeVar("T")


class Stopped(Exception):
    """The search ends here, for a reason that is not the policy's own `finish`."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """`deadline` is a `time.monotonic()` value; `cancel` ends the search when it is set."""

    deadline: float | None = None
    cancel: asyncio.Event | None = None

    @classmethod
    def of(cls, deadline_s: float | None, cancel: asyncio.Event | None) -> Limits:
        """Limits that start now."""
        return cls(None if deadline_s is None else time.monotonic() + deadline_s, cancel)

    async def within(self, work: Awaitable[T]) -> T:
        """Await, but not past the deadline or a cancellation. Threads cannot be stopped: their result is dropped.

        Raises:
            Stopped: a limit came first.
        """
        task = asyncio.ensure_future(work)
        waits: set[asyncio.Future[Any]] = {task}
        watcher = asyncio.ensure_future(self.cancel.wait()) if self.cancel is not None else None
        if watcher is not None:
            waits.add(watcher)
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        try:
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                if task.cancelled():  # by itself: nobody here has stopped it
                    raise RuntimeError("the work broke itself off (it raised CancelledError)")
                return task.result()
            cancelled = watcher is not None and watcher.done()
            raise Stopped(StopReason.CANCELLED if cancelled else StopReason.DEADLINE)
        finally:
            for pending in (task, watcher):
                if pending is not None and not pending.done():
                    pending.add_done_callback(_retrieve)
                    pending.cancel()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the outcome of abandoned work, so that asyncio does not report it as never retrieved."""
    if not future.cancelled():
        future.exception()
