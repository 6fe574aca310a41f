"""The order of tasks: shuffled anew in each epoch, easy ones first, and where a run stands in it.

Two things make it a curriculum. Stages admit tasks of more hops, from a fixed group on or when those of the present
hops are mostly solved. And of tasks that are solved nearly always, or hardly ever, an epoch takes up fewer: what is
solved about half of the time teaches most, since there rewards differ most.
"""

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
from thresher.train.rollouts.solving import SolveRate, closeness
from thresher.train.tasks.task import Task


class CurriculumError(TrainError):
    """Tasks cannot be put into an order, or a saved place belongs to others."""

    code = "invalid_curriculum"


@dataclass(frozen=True, slots=True)
class Stage:
    """From some point on, tasks of up to `hops` hops are tried; None lifts the limit.

    Attributes:
        start: from this group on.
        above: or from when the solve rate of the tasks of the stage before is above this, whichever comes first.
    """

    start: int | None
    hops: int | None
    above: float | None = None


@dataclass(frozen=True, slots=True)
class CurriculumSettings:
    """How tasks are ordered.

    Attributes:
        seed: of the shuffling.
        epochs: rounds through the tasks; None goes on for ever.
        shuffle: False keeps the order of the file in every epoch.
        stages: by rising start, the first at 0; none: all tasks from the start.
        rise_tasks: the solve rate that a stage is held to is the mean over its tasks of the most hops; so many of them
            (or all, if there are fewer) must have been tried.
        constant_share: how likely a task is taken up in an epoch, to the power of the times in a row that its group's
            rewards were all the same: such a group has no advantage and teaches nothing (DAPO samples until it has no
            such groups; Yu et al., 2025). 1 takes every task in every epoch.
        band: solve rates that are aimed for. A task outside of it is less likely to be taken up: the less the nearer
            its rate is to never or always, where `least_share` is left. None: solve rates count for nothing here.
        keep: what a task's earlier rollouts still count in its solve rate, for each group since, in [0, 1).
        solved_reward: a rollout that earns at least this has solved its task; None goes by its facts
            (`thresher.train.rollouts.solving.is_solved`).
        max_results: the most documents that a search may return: a task with more gold is solved by so many.
        least_share: below this no share falls, since what was too hard, or too easy, may not remain so.
    """

    seed: int = 0
    epochs: int | None = None
    shuffle: bool = True
    stages: tuple[Stage, ...] = ()
    constant_share: float = 1.0
    least_share: float = 0.1
    rise_tasks: int = 16
    band: tuple[float, float] | None = None
    keep: float = 0.5
    solved_reward: float | None = None
    max_results: int = 10

    def __post_init__(self) -> None:
        starts = [stage.start for stage in self.stages]
        fixed = [start for start in starts if start is not None]
        if starts and (starts[0] != 0 or any(a >= b for a, b in pairwise(fixed))):
            raise CurriculumError(f"the stages of a curriculum begin at 0 and rise, got starts {starts}")
        for stage in self.stages[1:]:
            if stage.start is None and stage.above is None:
                raise CurriculumError("each stage of a curriculum but the first needs start or above: when it begins")
        for stage in self.stages:
            if stage.above is not None and not 0 <= stage.above < 1:
                raise CurriculumError(f"above of a curriculum's stage must lie in [0, 1), got {stage.above}")
        if self.band is not None and not 0 <= self.band[0] <= self.band[1] <= 1:
            raise CurriculumError(f"band of a curriculum must rise within [0, 1], got {list(self.band)}")
        if not 0 <= self.keep < 1:
            raise CurriculumError(f"keep of a curriculum must lie in [0, 1), got {self.keep}")
        for name in ("rise_tasks", "max_results"):
            if getattr(self, name) < 1:
                raise CurriculumError(f"{name} of a curriculum must be at least 1, got {getattr(self, name)}")
        for name in ("constant_share", "least_share"):
            if not 0 < getattr(self, name) <= 1:
                raise CurriculumError(f"{name} of a curriculum must lie in (0, 1], got {getattr(self, name)}")
        if self.epochs is not None and self.epochs < 1:
            raise CurriculumError(f"epochs of a curriculum must be at least 1, got {self.epochs}")


class Curriculum:
    """Gives out tasks, as an iterator. A `Roller` tells it what became of them.

    A place in it can be saved with a checkpoint: tasks that were given out and whose groups were not yet handed over
    are then given out again, first. The order is the same for the same seed, but for what `constant_share` and `band`
    leave out, which is drawn by what became of the tasks before.

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
        self._rates: dict[str, SolveRate] = {}
        self._stage = 0
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
        return self._limit(self._standing())

    def solve_rate(self, task: Task) -> float | None:
        """Share of the task's rollouts that solved it, the later counting more; None before its first group."""
        return self._rates.get(task.id, SolveRate()).value

    def figures(self) -> dict[str, float]:
        """For the log: epoch, stage, mean solve rate of the tasks that were tried, and their share in the band."""
        known = list(self._rates.values())  # a copy: it is asked for from another thread than the roller's
        rates = [value for rate in known if (value := rate.value) is not None]
        band = self._settings.band or (0.0, 1.0)
        found = {"curriculum/epoch": float(self._epoch), "curriculum/stage": float(self._standing())}
        if rates:
            found["curriculum/solve_rate"] = sum(rates) / len(rates)
            found["curriculum/in_band"] = sum(band[0] <= rate <= band[1] for rate in rates) / len(rates)
        return found

    def settled(self, task: Task, group: Group | None) -> None:
        """What became of a task: the group that training takes, or None if it was dropped or cancelled."""
        if task.id in self._pending:
            self._pending.remove(task.id)
        if group is None:
            return
        settings = self._settings
        rate = self._rates.get(task.id, SolveRate())
        self._rates[task.id] = rate.after(
            group, keep=settings.keep, max_results=settings.max_results, reward=settings.solved_reward
        )
        self._stage = self._standing()
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
            "rates": {own: [rate.solved, rate.seen] for own, rate in self._rates.items()},
            "stage": self._stage,
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
        self._rates = {own: SolveRate(*rate) for own, rate in state.get("rates", {}).items()}
        self._stage = state.get("stage", 0)

    def _draw(self) -> str:
        self._stage = self._standing()
        place = self._eligible()
        if place is None:
            if self._settings.epochs is not None and self._epoch >= self._settings.epochs:
                raise StopIteration
            self._epoch += 1
            self._left = list(self._ordered())
            place = self._eligible()
        assert place is not None
        return self._left.pop(place)

    def _standing(self) -> int:
        """Number of the stage that the next task belongs to. Stages are never gone back."""
        stages, stage = self._settings.stages, self._stage
        while stage + 1 < len(stages) and self._begins(stages[stage + 1], self._limit(stage)):
            stage += 1
        return stage

    def _begins(self, stage: Stage, hops: int | None) -> bool:
        """Whether a stage begins behind one of up to `hops` hops."""
        if stage.start is not None and stage.start <= self._drawn:
            return True
        return stage.above is not None and self._mastered(hops, stage.above)

    def _mastered(self, hops: int | None, above: float) -> bool:
        """Whether the tasks of the most hops that are admitted are solved so often."""
        admitted = [task for task in self._tasks.values() if hops is None or task.hops <= hops]
        most = max(task.hops for task in admitted)
        own = [task for task in admitted if task.hops == most]
        rates = [rate for task in own if (rate := self.solve_rate(task)) is not None]
        return len(rates) >= min(len(own), self._settings.rise_tasks) and sum(rates) / len(rates) > above

    def _limit(self, stage: int) -> int | None:
        stages = self._settings.stages
        hops = stages[stage].hops if stages else None
        return None if hops is None else max(hops, self._easiest)

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
        settings, rate = self._settings, self._rates.get(own, SolveRate()).value
        near = 1.0
        if settings.band is not None and rate is not None:
            near = settings.least_share + (1 - settings.least_share) * closeness(rate, settings.band)
        return max(settings.least_share, settings.constant_share ** self._constant.get(own, 0) * near)

    def _fingerprint(self) -> str:
        return hashlib.sha256("\n".join(f"{own} {task.hops}" for own, task in self._tasks.items()).encode()).hexdigest()
