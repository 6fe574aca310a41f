"""Rollouts on disk: one a line, trajectory and reward, so that a run can be looked into and learned from again.

Every line is written whole or not at all as far as a process can see to that. A process that is killed may leave half a
line at the end: reading passes over it, and whoever writes next takes it away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.engine.trajectory import Trajectory
from thresher.train.errors import TrainError
from thresher.train.lines import LineFile
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.tasks.task import Task


class RecordingError(TrainError):
    """A file of rollouts cannot be written or read. The message names it, and the line."""

    code = "recording_failed"


class RecordedRollout(BaseModel):
    """A rollout as it lies in the file; see `Rollout`. Of its result the trajectory is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: int
    sample: int
    task: Task
    trajectory: Trajectory | None
    facts: Facts | None
    reward: Reward | None
    versions: tuple[int, ...] = ()
    seconds: float = 0.0
    attempts: int = 1
    fault: str | None = None
    budget: str = ""

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        """What is kept of a rollout."""
        return cls.model_construct(
            group=rollout.group,
            sample=rollout.sample,
            task=rollout.task,
            trajectory=rollout.trajectory,
            facts=rollout.facts,
            reward=rollout.reward,
            versions=rollout.versions,
            seconds=rollout.seconds,
            attempts=rollout.attempts,
            fault=rollout.fault,
            budget=rollout.budget,
        )


class RolloutLog:
    """Appends groups to a file of rollouts. One process writes it at a time.

    Raises:
        RecordingError: another process writes it, or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = LineFile(path)
        except BlockingIOError as error:
            raise RecordingError(f"another process writes {path}: name another file, or end that process") from error
        except OSError as error:
            raise RecordingError(f"cannot write {path}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, group: Group) -> None:
        """Write the rollouts of a group, faults too.

        Raises:
            RecordingError: the disk is full, or gone. What was written of the group is taken back.
        """
        lines = b"".join(_line(RecordedRollout.of(rollout)) for rollout in group.rollouts)
        try:
            self._file.append(lines, sync=False)
        except OSError as error:
            raise RecordingError(f"cannot write {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rollouts(path: Path) -> Iterator[RecordedRollout]:
    """Rollouts of a file, in the order in which their groups were handed over. Half a line at its end is passed over.

    Raises:
        RecordingError: the file cannot be read, or a line of it is no rollout.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield _record(line)
                except ValueError as error:
                    raise RecordingError(f"{path}:{number} is not a rollout: {error}") from error
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from error


def _record(line: bytes) -> RecordedRollout:
    try:
        return RecordedRollout.model_validate_json(line)
    except ValidationError:
        if b"\\ud" not in line:
            raise
        return RecordedRollout.model_validate(json.loads(line))


def _line(record: RecordedRollout) -> bytes:
    try:
        return record.model_dump_json().encode() + b"\n"
    except ValueError:  # a task whose answers hold what UTF-8 has no form for
        return json.dumps(record.model_dump(mode="python"), default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
