"""Searches in a fixed number of slots, oldest group first, with another try after a fault."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from thresher.engine.requests import StopReason
from thresher.train.rollouts.flight import Flight, Sample
from thresher.train.rollouts.scoring import Outcome
from thresher.train.rollouts.searching import Attempt, Found
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.stats import RollStats

logger = logging.getLogger(__name__)

Search = Callable[[Flight, Sample, Attempt], Awaitable[Found]]


class Slots:
    """Runs the samples that are put into its queue.

    Args:
        search: runs one attempt; what it raises is a bug.
        ended: told of every sample that has ended, its outcome set; not of one that was stopped.
        broken: told of a bug in a search; `failed`: of one in here, or in what is told.
        freed: called whenever a slot may have become free, or a sample waits for one.
    """

    def __init__(
        self,
        search: Search,
        settings: RollSettings,
        stats: RollStats,
        *,
        ended: Callable[[Flight, Sample], None],
        broken: Callable[[Flight, Sample, Exception], None],
        failed: Callable[[BaseException], None],
        freed: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._search = search
        self._settings = settings
        self._stats = stats
        self._tell_ended = ended
        self._tell_broken = broken
        self._tell_failed = failed
        self._tell_freed = freed
        self._sleep = sleep
        self._clock = clock
        self._queue: list[tuple[int, int, Flight]] = []
        self._work: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._counted_at: float | None = None

    @property
    def free(self) -> bool:
        """Whether a search could start."""
        return self._busy < self._settings.concurrency

    def enqueue(self, flight: Flight, sample: Sample) -> None:
        """Have a sample run once a slot is free. Older groups go first, so that none starves behind newer ones."""
        heapq.heappush(self._queue, (flight.number, sample.number, flight))

    def start_next(self) -> bool:
        """Start what waits longest; False if nothing does."""
        self.count_time()
        while self._queue:
            _, number, flight = heapq.heappop(self._queue)
            if not flight.gone:
                sample = flight.samples[number]
                sample.attempt = Attempt()
                sample.tried += 1
                self._busy += 1
                self._stats.searches += 1
                self._spawn(self._run(flight, sample, sample.attempt))
                return True
        return False

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that takes no slot; `settle` waits for it, too."""
        return self._spawn(work)

    def stop(self, sample: Sample) -> None:
        """Stop the search of a sample, or its wait for the next one. It is told of no more."""
        if sample.attempt is not None:
            sample.attempt.cancel.set()
            sample.attempt = None
            self._stats.cancelled += 1
        if sample.backing_off is not None:
            sample.backing_off.cancel()
            sample.backing_off = None

    async def settle(self) -> None:
        """Wait until nothing runs any more; everything was stopped before."""
        while self._work:
            await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.sleep(0)  # turns that the engine cut short end in the next round of the loop

    def count_time(self) -> None:
        """Add the time that has passed to the counts."""
        now = self._clock()
        passed = 0.0 if self._counted_at is None else now - self._counted_at
        self._stats.slot_seconds += passed * self._settings.concurrency
        self._stats.busy_seconds += passed * self._busy
        self._counted_at = now

    def snapshot(self) -> RollStats:
        """The counts up to now, as a copy: it may be taken from another thread."""
        counted_at, busy = self._counted_at, self._busy
        passed = 0.0 if counted_at is None else max(0.0, self._clock() - counted_at)
        return replace(
            self._stats,
            slot_seconds=self._stats.slot_seconds + passed * self._settings.concurrency,
            busy_seconds=self._stats.busy_seconds + passed * busy,
            staleness=dict(self._stats.staleness),
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """Unsaid, an error would lose a sample, and whoever waits for its group would wait for ever."""
        self._work.discard(task)
        if task.cancelled():
            if not task.cancelling():  # nobody here did
                self._tell_failed(RuntimeError("it was cancelled from within"))
        elif (error := task.exception()) is not None:
            self._tell_failed(error)

    async def _run(self, flight: Flight, sample: Sample, attempt: Attempt) -> None:
        started = self._clock()
        try:
            found = await self._search(flight, sample, attempt)
        except Exception as error:
            if sample.attempt is attempt:
                sample.attempt = None
                self._tell_broken(flight, sample, error)
            else:
                logger.warning("task %s: a search that was stopped raised", flight.task.id, exc_info=error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this search: something in it let a cancellation of its own out. Unsaid, its group would
            # never be complete, and training would wait for it for ever.
            if sample.attempt is attempt:
                sample.attempt = None
                self._tell_broken(flight, sample, RuntimeError(f"it was cancelled from within {error}".rstrip()))
        else:
            outcome = Outcome(found, self._clock() - started, sample.tried)
            if sample.attempt is attempt:  # else it was stopped, and another may have its place
                sample.attempt = None
                self._judge(flight, sample, outcome)
            else:
                self._stats.wasted_seconds += outcome.seconds
        finally:
            self.count_time()
            self._busy -= 1
            self._tell_freed()

    def _judge(self, flight: Flight, sample: Sample, outcome: Outcome) -> None:
        """Try again after a fault that may pass; else that is how the sample has ended."""
        fault, result = outcome.found.fault, outcome.found.result
        if fault is not None:
            self._stats.wasted_seconds += outcome.seconds
            if fault.passing and sample.tried < self._settings.attempts:
                logger.warning("task %s: %s; it is tried again", flight.task.id, fault.text)
                self._stats.retries += 1
                sample.backing_off = self._spawn(self._back_off(flight, sample))
                return
            logger.warning("task %s: given up after %d attempts: %s", flight.task.id, outcome.attempts, fault.text)
            self._stats.faults += 1
        elif result is not None and result.stop_reason is StopReason.ERROR:
            logger.warning("task %s ended with an error: %s", flight.task.id, "; ".join(result.warnings))
            self._stats.errors += 1
        sample.outcome = outcome
        self._tell_ended(flight, sample)

    async def _back_off(self, flight: Flight, sample: Sample) -> None:
        """Wait without a slot. A group that is tried again waits longer than the first time."""
        before = (flight.tried - 1) * self._settings.attempts
        await self._sleep(self._settings.wait_s(before + sample.tried, sample.dice.random()))
        sample.backing_off = None
        self.enqueue(flight, sample)
        self._tell_freed()
