"""Rollouts for the trainer: an event loop in a thread of its own, and what the trainer pulls from it.

The trainer is synchronous and the engine is not. Searches go on in the background while the trainer works; what breaks
them is raised where the trainer waits for the next groups.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from thresher.train.errors import RunError
from thresher.train.rollouts.curriculum import Curriculum
from thresher.train.rollouts.refill import refilled
from thresher.train.rollouts.rollout import Group
from thresher.train.tasks.task import Task

T = TypeVar("T")
LOOK_S = 1.0
"""How often it is looked whether the loop is still there."""


class Rolling(Protocol):
    """What is used of `thresher.train.rollouts.roller.Roller`."""

    async def groups(self, count: int) -> list[Group]:
        """The next complete groups."""

    def published(self, version: int) -> None:
        """New weights."""


class Alternating(Protocol):
    """Who is told when the trainer begins and ceases to wait; see `sync.base.Weights`."""

    def sampling(self) -> None:
        """The trainer waits."""

    def training(self) -> None:
        """The trainer goes on."""


class Background:
    """An event loop in a thread. What it opens is closed there, when it ends."""

    def __init__(self, name: str = "rollouts") -> None:
        self._loop = asyncio.new_event_loop()
        self._kept: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False
        self._ending: BaseException | None = None
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; what it raises is raised here. An interrupt cancels it.

        Raises:
            RunError: the loop is closed, or its thread has ended.
        """
        if self._closed:
            work.close()
            raise RunError("the rollouts have ended: this run was closed")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return self._result(future)
        except CancelledError as error:
            raise RunError("the rollouts were cancelled: this run is being closed") from error
        except BaseException:
            future.cancel()
            raise

    def _result(self, future: Future[T]) -> T:
        """What ends a loop from within, as SystemExit in a task does, leaves its futures open for ever."""
        while self._thread.is_alive():
            try:
                return future.result(LOOK_S)
            except TimeoutError:
                if future.done():
                    return future.result()  # that was its own
        if future.done():
            return future.result()
        raise RunError(
            f"the rollouts have ended: their event loop was ended from within ({self._ending or 'nobody said why'})"
        ) from self._ending

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Open something in the loop, to be closed there at the end, by the task that opened it."""

        async def opened() -> T:
            value: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            done = asyncio.Event()

            async def keep() -> None:
                try:
                    async with context as entered:
                        value.set_result(entered)
                        await done.wait()
                except Exception as error:
                    if value.done():
                        raise
                    value.set_exception(error)

            self._kept.append((done, asyncio.create_task(keep())))
            return await value

        return self.run(opened())

    def on_close(self, closing: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Await this at the end."""

        @asynccontextmanager
        async def closed() -> AsyncIterator[None]:
            try:
                yield
            finally:
                await closing()

        self.enter(closed())

    def call(self, function: Callable[..., Any], *values: Any) -> None:
        """Call a function in the loop, soon."""
        if not self._closed:
            self._loop.call_soon_threadsafe(function, *values)

    def close(self) -> None:
        """Cancel what runs, close what was opened, and end the thread. Safe to call twice.

        Raises:
            Exception: something that was opened could not be closed.
        """
        if self._closed:
            return
        try:
            self.run(self._ended())
        finally:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _ended(self) -> None:
        """Contexts close first, the last opened before the others; what is left of tasks then is cancelled."""
        failures: list[BaseException] = []
        for done, keeper in reversed(self._kept):
            done.set()
            failures += [end for end in await asyncio.gather(keeper, return_exceptions=True) if end is not None]
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if failures:
            raise failures[0]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            self._ending = error
        finally:
            with suppress(RuntimeError):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.run_until_complete(self._loop.shutdown_default_executor())


class OpenRoller(Protocol):
    """Makes the roller."""

    def __call__(self, tasks: Iterator[Task], *, first: int, version: int) -> AbstractAsyncContextManager[Rolling]:
        """A roller for these tasks, whose groups it numbers from `first`; weights of this version serve already."""


class RollerSource:
    """The trainer's `GroupSource`: groups of a `Roller` that runs in the background.

    The roller starts when the first groups are asked for, where `load_state_dict` says that the run was.

    Args:
        open_roller: makes the roller; it numbers groups in the order in which it takes tasks.
        model: told when the trainer waits and when it goes on.
        refill: further groups in place of constant ones, of those asked for (`thresher.train.rollouts.refill`).

    Attributes:
        refilled: how many further groups the last call gave.
    """

    def __init__(
        self,
        background: Background,
        open_roller: OpenRoller,
        tasks: Curriculum,
        model: Alternating,
        *,
        refill: float = 0.0,
    ) -> None:
        self._background = background
        self._open_roller = open_roller
        self._tasks = tasks
        self._model = model
        self._version = 0
        self._first = 0
        self._drawn = 0
        self._refill = refill
        self.refilled = 0
        self.roller: Rolling | None = None

    def next_groups(self, count: int) -> list[Group]:
        """The next `count` complete groups, and those that refill them. What broke the rollouts is raised here."""
        self._model.sampling()
        try:
            if self.roller is None:
                self._drawn = self._tasks.state_dict()["drawn"]
                opened = self._open_roller(self._tasks, first=self._first, version=self._version)
                self.roller = self._background.enter(opened)
            groups = self._background.run(refilled(self.roller.groups, count, self._refill))
            self.refilled = max(0, len(groups) - count)
            return groups
        finally:
            self._model.training()

    def published(self, version: int) -> None:
        """New weights are sampled from."""
        self._version = version
        if self.roller is not None:
            self._background.call(self.roller.published, version)

    def state_dict(self) -> dict[str, Any]:
        """Where the tasks are, and the number of the next group, as plain JSON values.

        Groups that were begun and not handed over count as not begun; their numbers are not used again.
        """

        async def state() -> dict[str, Any]:  # where the roller takes tasks
            tasks = self._tasks.state_dict()
            begun = tasks["drawn"] - self._drawn if self.roller is not None else 0
            return {"first": self._first + begun, "tasks": tasks}

        return self._background.run(state())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind what was handed over. Before the first groups only.

        Raises:
            CurriculumError: the run began with other tasks.
        """
        if self.roller is not None:
            raise RunError("the rollouts run already: load the state before the first step")
        self._tasks.load_state(state["tasks"])
        self._first = state["first"]

    def close(self) -> None:
        """Stop the rollouts. Safe to call twice."""
        self._model.sampling()  # so that searches that wait for a reply can end
        self._background.close()
