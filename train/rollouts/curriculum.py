"""The order of tasks: shuffled anew in each epoch, easy ones first, and where a run stands in it."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from thresher.train.errors import TrainError
from thresher.train.rollouts.rollout import Group
from thresher.train.tasks.task import Task


class CurriculumError(TrainError):
    """Tasks cannot be put into an order, or a saved place belongs to others."""

    code = "invalid_curriculum"


@dataclass(frozen=True, slots=True)
class Stage:
    """From group `start` on, tasks of up to `hops` hops are tried; None lifts the limit."""

    start: int
    hops: int | None


@dataclass(frozen=True, slots=True)
class CurriculumSettings:
    """How tasks are ordered.

    Attributes:
        seed: of the shuffling.
        epochs: rounds through the tasks; None goes on for ever.
        shuffle: False keeps the order of the file in every epoch.
        stages: by rising start, the first at 0; none: all tasks from the start.
        constant_share: how likely a task is taken up in an epoch, to the power of the times in a row that its group's
            rewards were all the same: such a group has no advantage and teaches nothing (DAPO samples until it has no
            such groups; Yu et al., 2025). 1 takes every task in every epoch.
        least_share: below this it does not fall, since what was too hard, or too easy, may not remain so.
    """

    seed: int = 0
    epochs: int | None = None
    shuffle: bool = True
    stages: tuple[Stage, ...] = ()
    constant_share: float = 1.0
    least_share: float = 0.1

    def __post_init__(self) -> None:
        starts = [stage.start for stage in self.stages]
        if starts and (starts[0] != 0 or any(a >= b for a, b in pairwise(starts))):
            raise CurriculumError(f"the stages of a curriculum begin at 0 and rise, got starts {starts}")
        for name in ("constant_share", "least_share"):
            if not 0 < getattr(self, name) <= 1:
                raise CurriculumError(f"{name} of a curriculum must lie in (0, 1], got {getattr(self, name)}")
        if self.epochs is not None and self.epochs < 1:
            raise CurriculumError(f"epochs of a curriculum must be at least 1, got {self.epochs}")


class Curriculum:
    """Gives out tasks, as an iterator. A `Roller` tells it what became of them.

    A place in it can be saved with a checkpoint: tasks that were given out and whose groups were not yet handed over
    are then given out again, first. The order is the same for the same seed, but for what `constant_share` leaves out.

    Raises:
        CurriculumError: there are no tasks, or two have one id.
    """

    def __init__(self, tasks: Sequence[Task], settings: CurriculumSettings | None = None) -> None:
        self._settings = settings or CurriculumSettings()
        self._tasks = {task.id: task for task in tasks}
        if not tasks:
            raise CurriculumError("there are no tasks to order")
        if len(self._tasks) != len(tasks):
            twice = next(own for own, count in Counter(task.id for task in tasks).items() if count > 1)
            raise CurriculumError(f"two tasks have the id {twice!r}: give each its own")
        self._easiest = min(task.hops for task in tasks)
        self._epoch = 0
        self._drawn = 0
        self._left: list[str] = []
        self._pending: list[str] = []
        self._constant: dict[str, int] = {}
        self._again: list[str] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Task:
        """The next task.

        Raises:
            StopIteration: the epochs are over.
        """
        own = self._again.pop(0) if self._again else self._draw()
        self._drawn += 1
        self._pending.append(own)
        return self._tasks[own]

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 1; 0 before the first task."""
        return self._epoch

    @property
    def hops(self) -> int | None:
        """The most hops that the next task may have; None for no limit."""
        stage = next((stage for stage in reversed(self._settings.stages) if stage.start <= self._drawn), None)
        return None if stage is None or stage.hops is None else max(stage.hops, self._easiest)

    def settled(self, task: Task, group: Group | None) -> None:
        """What became of a task: the group that training takes, or None if it was dropped or cancelled."""
        if task.id in self._pending:
            self._pending.remove(task.id)
        if group is None:
            return
        if group.constant:
            self._constant[task.id] = self._constant.get(task.id, 0) + 1
        else:
            self._constant.pop(task.id, None)

    def share(self, task: Task) -> float:
        """How likely an epoch takes a task up."""
        return self._share(task.id)

    def state_dict(self) -> dict[str, Any]:
        """Its place, ready for JSON."""
        return {
            "tasks": self._fingerprint(),
            "epoch": self._epoch,
            "drawn": self._drawn,
            "left": list(self._left),
            "pending": [*self._pending, *self._again],
            "constant": dict(self._constant),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved place; what was under way then is given out first.

        Raises:
            CurriculumError: it was saved with other tasks.
        """
        if state["tasks"] != self._fingerprint():
            raise CurriculumError(
                "the run was begun with other tasks: go on with the same file, split and limit, or begin a new run"
            )
        self._epoch = state["epoch"]
        self._left = list(state["left"])
        self._again = list(state["pending"])
        self._pending = []
        self._drawn = state["drawn"] - len(self._again)
        self._constant = dict(state["constant"])

    def _draw(self) -> str:
        place = self._eligible()
        if place is None:
            if self._settings.epochs is not None and self._epoch >= self._settings.epochs:
                raise StopIteration
            self._epoch += 1
            self._left = list(self._ordered())
            place = self._eligible()
        assert place is not None
        return self._left.pop(place)

    def _eligible(self) -> int | None:
        """Place of the first task of the epoch that the stage allows."""
        limit = self.hops
        return next((n for n, own in enumerate(self._left) if limit is None or self._tasks[own].hops <= limit), None)

    def _ordered(self) -> Iterator[str]:
        """The tasks of a new epoch in order. One that the dice would leave without any it can give takes all."""
        ids = list(self._tasks)
        dice = random.Random(f"{self._settings.seed}/{self._epoch}")
        if self._settings.shuffle:
            dice.shuffle(ids)
        limit = self.hops
        taken = {own for own in ids if dice.random() < self._share(own)}
        if not any(limit is None or self._tasks[own].hops <= limit for own in taken):
            return iter(ids)
        return (own for own in ids if own in taken)

    def _share(self, own: str) -> float:
        times = self._constant.get(own, 0)
        return max(self._settings.least_share, self._settings.constant_share**times) if times else 1.0

    def _fingerprint(self) -> str:
        return hashlib.sha256("\n".join(f"{own} {task.hops}" for own, task in self._tasks.items()).encode()).hexdigest()
