"""Rollouts in the background: what the trainer pulls, what it is told of, and where a run goes on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from thresher.train.errors import RunError
from thresher.train.rollouts.curriculum import Curriculum, CurriculumSettings
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.tasks.task import Task
from thresher.train.trainer.source import Background, RollerSource

TASKS = tuple(Task(f"t{number}", f"question {number}?") for number in range(5))


class Swapping:
    """A roller that hands groups over two by two, the later first."""

    def __init__(self, tasks: Any, first: int, version: int) -> None:
        self.versions = [version]
        self.closed = False
        self.thread = threading.current_thread()
        self._tasks = tasks
        self._next = first
        self._held: list[Group] = []

    async def groups(self, count: int) -> list[Group]:
        found = []
        while len(found) < count:
            if not self._held:
                self._held = [self._group(), self._group()]
            found.append(self._held.pop())
            self._tasks.settled(found[-1].task, found[-1])
            await asyncio.sleep(0)
        return found

    def published(self, version: int) -> None:
        assert threading.current_thread() is self.thread
        self.versions.append(version)

    def _group(self) -> Group:
        number, self._next = self._next, self._next + 1
        task = next(self._tasks)
        return Group(number, task, (Rollout(task, number, 0, None, None, None),))


class Turns:
    """Notes who had the model."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def sampling(self) -> None:
        self.told.append("sampling")

    def training(self) -> None:
        self.told.append("training")


class Made:
    """A source and what it is made of."""

    def __init__(self, *, shuffle: bool = False) -> None:
        self.rollers: list[Swapping] = []
        self.turns = Turns()
        self.background = Background()
        tasks = Curriculum(TASKS, CurriculumSettings(seed=1, shuffle=shuffle))
        self.source = RollerSource(self.background, self._open, tasks, self.turns)

    @asynccontextmanager
    async def _open(self, tasks: Iterator[Task], *, first: int, version: int) -> AsyncIterator[Swapping]:
        self.rollers.append(Swapping(tasks, first, version))
        task = asyncio.current_task()
        yield self.rollers[-1]
        assert asyncio.current_task() is task, "another task closes what this one opened"
        self.rollers[-1].closed = True


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    made.source.close()


def test_groups_come_from_another_thread_and_the_model_changes_hands(made: Made) -> None:
    groups = made.source.next_groups(3)
    assert [group.number for group in groups] == [1, 0, 3]
    assert [group.task for group in groups] == [TASKS[1], TASKS[0], TASKS[3]]
    assert made.turns.told == ["sampling", "training"]
    made.source.published(4)
    made.source.next_groups(1)
    assert made.rollers[0].versions == [0, 4]
    assert made.rollers[0].thread is not threading.current_thread()
    made.source.close()
    made.source.close()
    assert made.rollers[0].closed
    assert made.turns.told[-1] == "sampling", "searches that wait for the model could not end"
    with pytest.raises(RunError, match="closed"):
        made.source.next_groups(1)


def test_a_run_goes_on_behind_what_was_handed_over() -> None:
    """Groups that were begun and not handed over come again, and first; no task is trained twice in an epoch."""
    one, other, third = Made(shuffle=True), Made(shuffle=True), Made(shuffle=True)
    try:
        handed = one.source.next_groups(3)
        state = json.loads(json.dumps(one.source.state_dict()))
        assert state["first"] == 4
        left = one.rollers[0]._held[0].task
        other.source.load_state_dict(state)
        other.source.published(7)
        handed += other.source.next_groups(2)
        assert other.rollers[0].versions == [7]
        assert left in [group.task for group in handed[3:]]
        assert sorted(group.task.id for group in handed) == [task.id for task in TASKS]
        assert [group.number for group in handed] == [1, 0, 3, 5, 4]
        again = other.source.state_dict()
        third.source.load_state_dict(again)
        assert third.source.state_dict() == again, "nothing was begun, and something changed"
        numbers = [group.number for group in handed + third.source.next_groups(4)]
        assert len(set(numbers)) == len(numbers)
        with pytest.raises(RunError, match="before the first step"):
            other.source.load_state_dict(state)
    finally:
        for each in (one, other, third):
            each.source.close()


def test_what_breaks_the_rollouts_is_raised_where_the_trainer_waits(made: Made) -> None:
    async def broken(count: int) -> list[Group]:
        raise ValueError("the scorer broke")

    made.source.next_groups(1)
    made.rollers[0].groups = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="the scorer broke"):
        made.source.next_groups(1)
    assert made.turns.told[-1] == "training"


def test_closing_ends_a_wait_in_another_thread(made: Made) -> None:
    waiting, failures = threading.Event(), []

    async def never(count: int) -> list[Group]:
        waiting.set()
        await asyncio.Event().wait()
        return []

    made.source.next_groups(1)
    made.rollers[0].groups = never  # type: ignore[method-assign]

    def wait() -> None:
        try:
            made.source.next_groups(1)
        except RunError as error:
            failures.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    made.source.close()
    thread.join(20)
    assert not thread.is_alive()
    assert failures


def test_a_roller_that_cannot_be_opened() -> None:
    background = Background()

    @asynccontextmanager
    async def failing(tasks: Iterator[Task], **_: Any) -> AsyncIterator[Any]:
        raise OSError("no such server")
        yield

    source = RollerSource(background, failing, Curriculum(TASKS), Turns())
    with pytest.raises(OSError, match="no such server"):
        source.next_groups(1)
    source.close()
