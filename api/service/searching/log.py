"""What happened, as numbered events that many may follow: each from where it left off, at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

MAX_EVENTS = 5_000
"""Events that are kept of one search or job; past it the oldest go, and their numbers with them."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event. Numbers grow by 1 from 1; after a restart of the server they go on from a higher one.

    `data` is ready for JSON but for the `response` of a search that has ended, which is a model.
    """

    number: int
    type: str
    data: dict[str, Any]


class EventLog:
    """The events of one search or job. For one event loop; `append` and `close` belong to it."""

    def __init__(self, events: Iterable[Told] = (), *, after: int = 0, limit: int = MAX_EVENTS) -> None:
        """`after`: the number that the first event follows, if there are no `events` yet."""
        self._events = list(events)
        self._last = self._events[-1].number if self._events else after
        self._limit = limit
        self._closed = False
        self._news = asyncio.Event()

    @property
    def kept(self) -> tuple[Told, ...]:
        """What is kept, oldest first."""
        return tuple(self._events)

    @property
    def last(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self._last

    @property
    def closed(self) -> bool:
        """Whether there will be no more."""
        return self._closed

    def append(self, type: str, data: dict[str, Any]) -> Told:
        """Tell one more."""
        self._last += 1
        told = Told(self._last, type, data)
        self._events.append(told)
        if len(self._events) > self._limit + self._limit // 4:  # not one by one: each cut moves all the others
            del self._events[: len(self._events) - self._limit]
        self._wake()
        return told

    def close(self) -> None:
        """No more will come: whoever follows is let go."""
        self._closed = True
        self._wake()

    async def follow(self, after: int = 0) -> AsyncIterator[Told]:
        """What is kept past number `after`, then what comes, until the log is closed."""
        while True:
            news = self._news
            for told in self._past(after):
                after = told.number
                yield told
            if self._closed and after >= self._last:
                return
            if news is self._news:  # else something came while the events were taken
                await news.wait()

    def _past(self, after: int) -> list[Told]:
        if not self._events or after >= self._last:
            return []
        return self._events[max(0, after + 1 - self._events[0].number) :]

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
