"""That something changed, told from any thread to those who wait in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

Listener = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Newsboard:
    """Listeners by what they listen for. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: dict[str, set[Listener]] = {}

    @contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set whenever there is news of `name`; whoever waits clears it first."""
        listener = asyncio.get_running_loop(), asyncio.Event()
        with self._guard:
            self._listeners.setdefault(name, set()).add(listener)
        try:
            yield listener[1]
        finally:
            with self._guard:
                listeners = self._listeners[name]
                listeners.discard(listener)
                if not listeners:
                    del self._listeners[name]

    def tell(self, name: str) -> None:
        """There is news of `name`."""
        with self._guard:
            listeners = list(self._listeners.get(name, ()))
        _wake(listeners)

    def tell_all(self) -> None:
        """There is news for everybody."""
        with self._guard:
            listeners = [listener for group in self._listeners.values() for listener in group]
        _wake(listeners)


def _wake(listeners: list[Listener]) -> None:
    for loop, news in listeners:
        with suppress(RuntimeError):  # the loop is closed, and whoever listened gone with it
            loop.call_soon_threadsafe(news.set)
