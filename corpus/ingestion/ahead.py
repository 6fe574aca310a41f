"""Running an iterator ahead of its consumer, in a thread, as far as a bound on what waits allows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_S = 0.2


class _Buffer(Generic[T]):
    """Items on their way from one thread to another, with the error or end that follows them."""

    def __init__(self, limit: int, weigh: Callable[[T], int], stop: threading.Event) -> None:
        self._items: deque[tuple[T, int]] = deque()
        self._changed = threading.Condition()
        self._limit = limit
        self._weigh = weigh
        self._stop = stop
        self._weight = 0
        self._ended = False
        self.error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Wait for room, then add; False if it is not wanted any more. One item always has room."""
        with self._changed:
            while self._weight >= self._limit and not self._stop.is_set():
                self._changed.wait(_POLL_S)
            if self._stop.is_set():
                return False
            weight = self._weigh(item)
            self._items.append((item, weight))
            self._weight += weight
            self._changed.notify_all()
        return True

    def end(self, error: BaseException | None = None) -> None:
        with self._changed:
            self._ended, self.error = True, error
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Whether nothing is left and nothing more will come."""
        with self._changed:
            return self._ended and not self._items

    def take(self, timeout_s: float) -> list[T]:
        """The next item as a list, or an empty one: at the end, when stopped, or when none came in that time."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while not self._items and not self._ended and not self._stop.is_set():
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(min(_POLL_S, left))
            if not self._items or self._stop.is_set():
                return []
            item, weight = self._items.popleft()
            self._weight -= weight
            self._changed.notify_all()
        return [item]


def run_ahead(
    items: Iterable[T],
    limit: int,
    name: str,
    *,
    weigh: Callable[[T], int] = lambda item: 1,
    idle: tuple[float, T] | None = None,
    stop: threading.Event | None = None,
    join_s: float = 0.0,
) -> Generator[T, None, None]:
    """The same items in the same order, computed in a thread called `name` while less than `limit` waits.

    An error of `items` is raised here, after what came before it.

    Args:
        weigh: what an item counts for in `limit`.
        idle: (seconds, item): that item is given whenever no other has come for so long.
        stop: ends both sides soon once it is set; it is set when this generator is left early. Stages that feed one
            another share it, since closing the last cannot reach into one that waits for its input.
        join_s: how long leaving early waits for the thread to finish what it is doing.
    """
    stopped = stop or threading.Event()
    buffer = _Buffer(limit, weigh, stopped)

    def run() -> None:
        error: BaseException | None = None
        try:
            for value in items:
                if not buffer.put(value):
                    break
        except BaseException as raised:
            error = raised
        finally:
            if isinstance(items, Generator):
                items.close()
            buffer.end(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    patience, stand_in = idle or (60.0, None)
    complete = False
    try:
        while not stopped.is_set():
            taken = buffer.take(patience)
            if taken:
                yield taken[0]
            elif buffer.drained:
                complete = True
                if buffer.error is not None:
                    raise buffer.error
                return
            elif stand_in is not None and not stopped.is_set():
                yield stand_in
        # Another stage failed and was left: what it raised is on its way here.
        thread.join(join_s)
        if buffer.error is not None:
            raise buffer.error
    finally:
        if not complete:
            stopped.set()
            thread.join(join_s)
