"""Rollouts beside each other while the weights change: groups as they are complete, within a bound of staleness."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.errors import InfrastructureDown, RolloutError, ScoringFailed, WeightsNotServed
from thresher.train.rollouts.flight import Flight, Sample
from thresher.train.rollouts.rating import Rating
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.searching import Attempt, Found, search_once
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.slots import Slots
from thresher.train.rollouts.staleness import Bound
from thresher.train.rollouts.stats import RollStats
from thresher.train.tasks.task import Task

logger = logging.getLogger(__name__)

STALE_RUNS = 8
"""So often a rollout may be run again for being stale; then new weights evidently do not reach what samples."""
NAMED = 16
"""Names of dropped tasks that the counts keep."""


@runtime_checkable
class Settling(Protocol):
    """Tasks that want to know what became of them; see `thresher.train.rollouts.curriculum`."""

    def settled(self, task: Task, group: Group | None) -> None:
        """A task's group was handed over, or (None) dropped or cancelled."""


class Roller:
    """Runs groups of searches, up to `concurrency` at once. Use it as an async context; leaving it stops all of them.

    Everything happens in one event loop. `published` may be called, and `stats` read, from other threads.

    A rollout is a search of the engine that serves, with a seed of its own (`group_seeds`). When new weights are
    published, searches go on: each turn carries the version that sampled it. Work is started ahead of training only
    as far as training can still use it, and groups are handed over in order of completion, but for those whose last
    chance has come, which are waited for (`thresher.train.rollouts.staleness`): no group is dropped for being long.
    What becomes too stale all the same, because training took more versions than it said, is cancelled and run again
    with the same seed.

    An infrastructure fault (`thresher.train.rollouts.faults`) is tried again after a wait; whatever a policy brings
    about is scored as it is. What no attempt got past stays in its group without a reward.

    Args:
        engine: the engine that serves; its policy is what is trained.
        request: how to search; each task's question takes the place of its query.
        scorer: scores a group's searches, all at once. What it raises ends the run.
        tasks: in the order in which they are to be tried; it may be endless. It is asked only when a group can start.
        settings: sizes, bounds and patience.
        progress: where training stands, in [0, 1], for rewards that change with it.
        version: of the weights that serve at the start; `first`: number of the first group. For runs taken up again.
        record: told of every group as it is handed over.
        sleep, clock: for tests.
    """

    def __init__(
        self,
        engine: SearchEngine,
        request: SearchRequest,
        scorer: Scores,
        tasks: Iterator[Task],
        settings: RollSettings | None = None,
        *,
        progress: Callable[[], float] = lambda: 1.0,
        version: int = 0,
        first: int = 0,
        record: Callable[[Group], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings = settings or RollSettings()
        self._engine = engine
        self._request = request
        for budget in self.settings.budgets:
            budget.applied(request)  # what cannot be asked for is said now
        self._tasks = tasks
        self._version = version
        self._next = first
        self._record = record
        self._clock = clock
        self._bound = Bound(self.settings.max_staleness, self.settings.groups_per_step)
        self._stats = RollStats()
        self._slots = Slots(
            self._search,
            self.settings,
            self._stats,
            ended=self._ended,
            broken=self._broken,
            failed=self._failed,
            freed=self._pump,
            sleep=sleep,
            clock=clock,
        )
        self._rating = Rating(
            scorer,
            self.settings,
            self._stats,
            progress=progress,
            beside=self._slots.beside,
            rated=self._rated,
            too_few=self._too_few,
            broken=self._end,
            judged=self._pump,
        )
        self._flights: dict[int, Flight] = {}
        self._ready: list[Flight] = []
        self._taken = 0
        self._wanted = 0
        self._dropped_in_a_row = 0
        self._exhausted = False
        self._error: RolloutError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._pump()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def version(self) -> int:
        """Of the weights that were published last."""
        return self._version

    @property
    def stats(self) -> RollStats:
        """What it cost so far."""
        return self._slots.snapshot()

    async def groups(self, count: int) -> list[Group]:
        """The next `count` complete groups; fewer only where the tasks have ended, none once all were handed over.

        Take those of a step only when the weights of the step before are published: staleness is counted from here.
        Callers are served one after the other. One that is cancelled takes nothing with it.

        Raises:
            RolloutError: rollouts have ended; every later call raises the same.
            ValueError: `count` is not positive.
        """
        if count < 1:
            raise ValueError(f"count of groups must be at least 1, got {count}")
        async with self._turn:
            waited: float | None = None
            self._wanted = count
            try:
                while (chosen := self._choose(count)) is None:
                    if waited is None:
                        waited = self._clock()
                        self._stats.waits += 1
                        self._stats.waits_for_due += len(self._ready) >= count
                    self._changed.clear()
                    await self._changed.wait()
            finally:
                self._wanted = 0
                if waited is not None:
                    self._stats.wait_seconds += self._clock() - waited
            groups = [self._hand_over(flight) for flight in chosen]
            self._pump()
            return groups

    def published(self, version: int) -> None:
        """New weights serve from now on. Searches go on with them; those too stale for them are run again.

        May be called from any thread.

        Raises:
            ValueError: the version is older than the last one.
        """
        if version < self._version:
            raise ValueError(f"version {version} was published after version {self._version}")
        if self._loop is None or self._loop is _running_loop():
            self._publish(version)
        else:
            self._loop.call_soon_threadsafe(self._publish, version)

    def cancel(self, number: int) -> bool:
        """Stop a group that was not handed over, and forget it; False if there is none of that number."""
        flight = self._flights.get(number)
        if flight is None:
            return False
        self._forget(flight)
        self._settle(flight, None)
        self._pump()
        return True

    async def aclose(self) -> None:
        """Stop every search through the engine's own cancel event, and wait until all have ended."""
        self._end(RolloutError("the roller is closed: ask for groups inside its context"))
        await self._slots.settle()

    # --- handing over

    def _choose(self, count: int) -> list[Flight] | None:
        """The groups to hand over, or None where some must be waited for. Raises what ended the run."""
        if self._loop is None:
            raise RolloutError("the roller has not begun: use it as an async context, `async with Roller(…) as roller`")
        self._pump()
        if self._error is not None:
            raise self._error
        if self._exhausted and len(self._flights) == len(self._ready):
            count = min(count, len(self._ready))
        running = [flight.oldest for flight in self._flights.values() if flight.group is None]
        ready = [flight.oldest for flight in self._ready]
        places = self._bound.pick(ready, running, version=self._version, taken=self._taken, count=count)
        return None if places is None else [self._ready[place] for place in places]

    def _hand_over(self, flight: Flight) -> Group:
        group = flight.group
        assert group is not None
        self._forget(flight)
        self._taken += 1
        self._stats.count(group, self._version)
        if self._record is not None:
            self._record(group)
        self._settle(flight, group)
        return group

    def _settle(self, flight: Flight, group: Group | None) -> None:
        if isinstance(self._tasks, Settling):
            self._tasks.settled(flight.task, group)

    # --- starting

    def _pump(self) -> None:
        """Start what may be started. Called whenever a slot, room, a sample or a task may have come."""
        self._changed.set()
        while self._error is None and self._slots.free:
            if not self._slots.start_next() and not self._begin_group():
                return

    def _begin_group(self) -> bool:
        """Take up another task, if there is one and what becomes of it can be trained."""
        unhanded = len(self._flights)
        room = self._bound.room(unhanded=unhanded, taken=self._taken) > 0 or unhanded < self._wanted
        if self._exhausted or not room:
            return False
        try:
            task = next(self._tasks)
        except StopIteration:
            self._exhausted = True
            return False
        except Exception as error:
            self._end(RolloutError(f"the tasks broke: {type(error).__name__}: {error}"), error)
            return False
        flight = Flight.of(self._next, task, self._request, self.settings)
        self._next += 1
        self._flights[flight.number] = flight
        self._stats.started += 1
        for sample in flight.samples:
            self._slots.enqueue(flight, sample)
        return True

    async def _search(self, flight: Flight, sample: Sample, attempt: Attempt) -> Found:
        return await search_once(
            self._engine,
            flight.request,
            flight.task,
            seed=sample.seed,
            attempt=attempt,
            version=lambda: self._version,
            deadline_s=self.settings.deadline_s,
        )

    # --- what became of it

    def _ended(self, flight: Flight, sample: Sample) -> None:
        if self._bound.stale(sample.oldest, self._version):
            self._run_again(flight, sample)
        elif flight.complete:
            self._rating.rate(flight)

    def _rated(self, flight: Flight) -> None:
        self._dropped_in_a_row = 0
        self._ready.append(flight)

    def _too_few(self, flight: Flight) -> None:
        """Try a group again of which faults left too little, or drop it."""
        faults = [fault for sample in flight.faulty if (fault := sample.fault) is not None]
        if flight.tried < self.settings.group_attempts and any(fault.passing for fault in faults):
            flight.tried += 1
            self._stats.rerun_groups += 1
            for sample in flight.faulty:
                sample.again()
                self._slots.enqueue(flight, sample)
            return
        text = faults[-1].text
        logger.warning("task %s: the group is dropped: %s", flight.task.id, text)
        self._forget(flight)
        self._stats.dropped += 1
        self._stats.dropped_tasks = (*self._stats.dropped_tasks, flight.task.id)[-NAMED:]
        self._settle(flight, None)
        self._dropped_in_a_row += 1
        if self._dropped_in_a_row >= self.settings.give_up_after:
            self._end(
                InfrastructureDown(
                    f"{self._dropped_in_a_row} groups in a row could not be run, the last for task {flight.task.id!r}: "
                    f"{text}. Mend that, then go on from the last checkpoint"
                )
            )

    def _run_again(self, flight: Flight, sample: Sample) -> None:
        """Run a rollout again whose oldest turn is too old, with the same seed."""
        sample.stale_runs += 1
        if sample.stale_runs > STALE_RUNS:
            self._end(
                WeightsNotServed(
                    f"a rollout of task {flight.task.id!r} was run {STALE_RUNS} times and came back with weights of "
                    f"version {sample.oldest}, while version {self._version} is published and "
                    f"{self._bound.max_staleness} behind are allowed: new weights do not reach what samples; look at "
                    "the weight sync"
                )
            )
            return
        self._stats.stale += 1
        if sample.outcome is not None:
            self._stats.wasted_seconds += sample.outcome.seconds
        self._slots.stop(sample)
        flight.stop_judging()
        sample.again()
        if flight.group is not None:
            self._stats.stale_groups += 1
            self._ready.remove(flight)
            flight.group = None
        self._slots.enqueue(flight, sample)

    def _publish(self, version: int) -> None:
        if version == self._version:
            return
        self._version, self._taken = version, 0
        stale = [
            (flight, sample)
            for flight in self._flights.values()
            for sample in flight.samples
            if self._bound.stale(sample.oldest, version)
        ]
        for flight, sample in stale:
            if not flight.gone:
                self._run_again(flight, sample)
        self._pump()

    def _forget(self, flight: Flight) -> None:
        """Let go of a group, and stop what still runs of it."""
        flight.gone = True
        flight.stop_judging()
        for sample in flight.samples:
            self._slots.stop(sample)
        if flight.group is not None:
            self._ready.remove(flight)
        del self._flights[flight.number]

    def _broken(self, flight: Flight, sample: Sample, error: Exception) -> None:
        where = f"the search for task {flight.task.id!r} (group {flight.number}, sample {sample.number})"
        self._end(
            ScoringFailed(
                f"{where} raised {type(error).__name__}: {error}. This is a bug in the engine, its policy or its tools"
            ),
            error,
        )

    def _failed(self, error: BaseException) -> None:
        text = f"the rollouts broke: {type(error).__name__}: {error}. This is a bug between search and group"
        self._end(RolloutError(text), error)

    def _end(self, error: RolloutError, cause: BaseException | None = None) -> None:
        """End the run: nothing more is started, what runs is stopped, and whoever asks for groups is told why."""
        if self._error is None:
            error.__cause__ = cause
            self._error = error
            for flight in list(self._flights.values()):
                self._forget(flight)
        self._changed.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
