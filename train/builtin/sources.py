"""What the builtin policy is trained and compared on: tasks with the collection that they are searched in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.train.tasks.splits import split_tasks
from thresher.train.tasks.task import Task, TaskError

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection

HALVES = {"train": 0.5, "dev": 0.5}
HALVES_SEED = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Tasks of one collection; `name` is what reports call them."""

    name: str
    tasks: tuple[Task, ...]
    collection: Collection


def portion(tasks: Sequence[Task], split: str | None) -> tuple[Task, ...]:
    """The tasks of a split.

    A set that is not split has two halves, `train` and `dev`, which keep near-duplicates and questions with common gold
    documents together; the halves are always the same.

    Raises:
        TaskError: there is no such split.
    """
    if split is None:
        return tuple(tasks)
    if any(task.split for task in tasks):
        kept = tuple(task for task in tasks if task.split == split)
        known = ", ".join(sorted({task.split for task in tasks if task.split}))
    else:
        halves = split_tasks(tasks, HALVES, seed=HALVES_SEED, keep_gold_together=True).of
        kept = tuple(task for task in tasks if halves[task.id] == split)
        known = "no splits of its own, so its halves are called train and dev"
    if not kept:
        raise TaskError(f"there is no split {split!r}: the set has {known}")
    return kept


def set_aside(tasks: Sequence[Task], share: float, seed: int) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Tasks to learn from, and tasks to stop by, near-duplicates on one side.

    Raises:
        TaskError: one side would be empty.
    """
    dealt = split_tasks(tasks, {"learn": 1 - share, "stop": share}, seed=seed).of
    learn = tuple(task for task in tasks if dealt[task.id] == "learn")
    stop = tuple(task for task in tasks if dealt[task.id] == "stop")
    if not learn or not stop:
        raise TaskError(
            f"{len(tasks)} tasks are too few to set some aside: bring more questions (50 or so are a beginning)"
        )
    return learn, stop
