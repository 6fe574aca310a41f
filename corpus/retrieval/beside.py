"""Two things at once: dense and BM25 search leave Python while they work, so a second core can have one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from thresher.corpus.cores import usable_cores

A = TypeVar("A")
B = TypeVar("B")

THREADS = 4
"""Searches at once that get a thread; others do one thing after the other, as all cores are busy then anyway."""


class Beside:
    """Calls two functions at once, in this thread and in one of a few that end with `close`. Thread-safe."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads` is by default as many as there are other cores, at most `THREADS`; 0 for none."""
        self._threads = min(THREADS, usable_cores() - 1) if threads is None else threads
        self._free = threading.Semaphore(self._threads)
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def __call__(self, one: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
        """What both return. Neither runs any more when this returns or raises; `one`'s error goes before `other`'s."""
        future = self._start(other)
        if future is None:
            return one(), other()
        try:
            first = one()
        except BaseException:
            wait([future])
            raise
        return first, future.result()

    def close(self) -> None:
        """End the threads. Later calls do one thing after the other."""
        with self._guard:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _start(self, work: Callable[[], B]) -> Future[B] | None:
        """Begin `work` in a thread if one is free."""
        if not self._free.acquire(blocking=False):
            return None
        with self._guard:
            if self._closed:
                self._free.release()
                return None
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="thresher-search")
            try:
                future = self._pool.submit(work)
            except BaseException:  # no thread can be started
                self._free.release()
                raise
        future.add_done_callback(lambda _: self._free.release())
        return future
