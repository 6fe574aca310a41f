"""The background thread that brings a dense index back into order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thresher.corpus.errors import IndexUnreachable

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_LOCK_SLICE = 0.1


class Stopped(Exception):
    """The collection is closing while its index is being repaired."""


class Recovery:
    """Attempts a repair in a thread of its own, again and again while something cannot be reached."""

    def __init__(self, attempt: Callable[[], None], needed: Callable[[], bool]) -> None:
        """`attempt` makes one step towards order and raises what kept it from that; `needed` says if one is left."""
        self._attempt = attempt
        self._needed = needed
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._asked = False
        self._ended = False

    def start(self) -> None:
        """Begin, unless it is under way. Returns at once."""
        with self._guard:
            if self._ended or self._stop.is_set():
                return
            self._asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="thresher-dense-repair", daemon=True)
                self._thread.start()

    def pause(self) -> None:
        """Stop what is under way and wait until it has stopped."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._stop.clear()

    def end(self) -> None:
        """Stop for good."""
        with self._guard:
            self._ended = True
        self.pause()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until it has come to an end."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def check(self) -> None:
        """Raise `Stopped` if it is to stop: for long attempts to call now and then."""
        if self._stop.is_set():
            raise Stopped

    @contextmanager
    def holding(self, lock: threading.RLock) -> Iterator[None]:
        """Hold `lock`, which may be held by someone who waits for this thread to stop."""
        while not lock.acquire(timeout=_LOCK_SLICE):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while self._wanted():
            try:
                self.check()
                self._attempt()
                pause = _FIRST_PAUSE
            except Stopped:
                logger.info("repairing the Chroma index was interrupted; it starts again on the next open")
                return self._leave()
            except IndexUnreachable as error:
                if pause == _FIRST_PAUSE:
                    logger.warning("exact search serves until the Chroma index is back: %s", error)
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except Exception:
                logger.exception(
                    "the Chroma index could not be rebuilt; exact search serves, `thresher rebuild` tries again"
                )
                return self._leave()

    def _wanted(self) -> bool:
        with self._guard:
            if self._asked or self._needed():
                self._asked = False
                return True
            self._thread = None
            return False

    def _leave(self) -> None:
        with self._guard:
            self._asked = False
            self._thread = None
