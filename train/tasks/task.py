"""Tasks: questions with the answers and gold documents that a search is scored against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class TaskError(Exception):
    """A task file cannot be read. The message names the file, the line and what is wrong with it."""

    code = "invalid_tasks"


@dataclass(frozen=True, slots=True)
class Task:
    """One question.

    Attributes:
        answers: accepted answers, aliases of each other; empty where the set has none.
        gold_ids: documents that hold the evidence; empty for questions that the corpus cannot answer.
        hops: how many documents must be combined.
        type: the set's own word for the kind of question.
        split: `dev`, `train`, …; empty where the set is not split.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    hops: int = 1
    type: str = ""
    split: str = ""

    @property
    def answerable(self) -> bool:
        """Whether the corpus holds the evidence."""
        return bool(self.gold_ids)


def read_tasks(path: Path) -> Iterator[Task]:
    """Read a `queries.jsonl`, in file order. Fields that are not ours are ignored.

    Raises:
        TaskError: the file is missing, a line is not a task, or an id occurs twice.
    """
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                task = _parse(line, f"{path}:{number}")
                if task.id in seen:
                    raise TaskError(f"{path}:{number}: id {task.id!r} was used before, on line {seen[task.id]}")
                seen[task.id] = number
                yield task
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8: {error}") from error


def load_tasks(path: Path, *, split: str | None = None, limit: int | None = None) -> list[Task]:
    """The first `limit` tasks of a split, or of the whole file.

    Raises:
        TaskError: as `read_tasks`, or there is no such split.
    """
    tasks = list(read_tasks(path))
    if split is not None:
        splits = sorted({task.split for task in tasks if task.split})
        tasks = [task for task in tasks if task.split == split]
        if not tasks:
            known = f"it has {', '.join(splits)}" if splits else "its queries are not split; leave the split out"
            raise TaskError(f"{path} has no split {split!r}: {known}")
    if not tasks:
        raise TaskError(f"{path} holds no queries")
    return tasks[:limit]


def _parse(line: str, where: str) -> Task:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise TaskError(f"{where}: a task is a JSON object, got {type(record).__name__}")
    hops = record.get("hops", 1)
    if isinstance(hops, bool) or not isinstance(hops, int):
        raise TaskError(f"{where}: hops must be a whole number, got {hops!r}")
    return Task(
        id=_string(record, "id", where, required=True),
        question=_string(record, "question", where, required=True),
        answers=_strings(record, "answers", where),
        gold_ids=_strings(record, "gold_ids", where),
        hops=hops,
        type=_string(record, "type", where),
        split=_string(record, "split", where),
    )


def _string(record: dict[str, Any], key: str, where: str, *, required: bool = False) -> str:
    value = record.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise TaskError(f"{where}: {key} must be {'non-empty ' if required else ''}text, got {value!r}")
    return value


def _strings(record: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TaskError(f"{where}: {key} must be a list of strings, got {value!r}")
    return tuple(dict.fromkeys(value))
