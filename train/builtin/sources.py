"""What the builtin policy is trained and compared on: tasks with the collection that they are searched in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.train.tasks.splits import split_tasks
from thresher.train.tasks.task import Task, TaskError

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection


@dataclass(frozen=True, slots=True)
class Source:
    """Tasks of one collection; `name` is what reports call them."""

    name: str
    tasks: tuple[Task, ...]
    collection: Collection


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
