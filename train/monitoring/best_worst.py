"""The best and the worst rollouts of a step, out of a file that holds all of a run.

The file does not say which step a rollout was for. Groups lie in it in the order in which steps took them, and the log
says how many a step took and what they earned on average; by these both are laid side by side. A step whose rollouts
are not there, since logging was off or the process was killed in between, has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thresher.train.monitoring.log import LogError, StepLog, parse_lines
from thresher.train.rollouts.recording import RecordedRollout, RecordingError

CLOSE = 1e-6
"""Means of the same rewards differ by less."""


@dataclass(frozen=True, slots=True)
class Line:
    """A rollout by its line, without its turns.

    Attributes:
        number: of the line, from 1.
        total: its reward; None where a fault took it away.
        parts: what each term added to the reward.
        step: that trained on it; None where that is not known.
    """

    number: int
    group: int
    sample: int
    question: str
    total: float | None
    parts: Mapping[str, float]
    turns: int
    ended: str
    seconds: float
    fault: str | None = None
    step: int | None = None


def rollout_lines(path: Path, log: Path) -> tuple[list[Line], list[str]]:
    """All rollouts of a file with their steps, and what is wrong with the file. A torn last line is left out."""
    problems: list[str] = []
    lines = list(_lines(path, problems))
    groups = _grouped(lines)
    found: dict[int, int] = {}
    at = 0
    for step in _raw_steps(log):
        start = _where(step, groups, at)
        if start is not None:
            for group in groups[start : start + step.groups]:
                found.update((line.number, step.step) for line in group)
            at = start + step.groups
    return [replace(line, step=found.get(line.number)) for line in lines], problems


def best_and_worst(lines: Sequence[Line], step: int | None, count: int) -> tuple[list[Line], list[Line]]:
    """The best of a step, and the worst of the others, best first each; `step` None: of rollouts without a step."""
    scored = [line for line in lines if line.step == step and line.total is not None and not math.isnan(line.total)]
    ranked = sorted(scored, key=lambda line: (-(line.total or 0.0), line.number))
    best = ranked[: min(count, math.ceil(len(ranked) / 2))]
    return best, ranked[len(best) :][-count:] if count else []


def read_rollout(path: Path, number: int) -> RecordedRollout:
    """The rollout in a line, from 1.

    Raises:
        RecordingError: there is no such line, or it is no rollout.
    """
    try:
        with path.open("rb") as file:
            for at, line in enumerate(file, 1):
                if at == number and line.endswith(b"\n"):
                    return RecordedRollout.model_validate(json.loads(line))
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}:{number} is not a rollout: {error}") from error
    raise RecordingError(f"{path} has no rollout {number}: `thresher runs {path.parent} --rollouts` lists some")


def _lines(path: Path, problems: list[str]) -> Iterator[Line]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    try:
                        yield _line(json.loads(line), number)
                    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                        problems.append(f"{path.name}:{number} is not a rollout")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror or error}")


def _line(record: Mapping[str, Any], number: int) -> Line:
    reward, trajectory = record.get("reward"), record.get("trajectory")
    return Line(
        number=number,
        group=int(record["group"]),
        sample=int(record["sample"]),
        question=str(record["task"]["question"]),
        total=float(reward["total"]) if reward is not None else None,
        parts={str(name): float(value) for name, value in reward["parts"].items()} if reward is not None else {},
        turns=len(trajectory["turns"]) if trajectory is not None else 0,
        ended=str(trajectory["stop_reason"]) if trajectory is not None else "",
        seconds=float(record.get("seconds") or 0.0),
        fault=str(record["fault"]) if record.get("fault") is not None else None,
    )


def _grouped(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines of one group that follow each other."""
    groups: list[list[Line]] = []
    for line in lines:
        if groups and groups[-1][-1].group == line.group and groups[-1][-1].sample < line.sample:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _raw_steps(log: Path) -> Iterator[StepLog]:
    """The steps in the order of the file, also those of a stretch that was abandoned: their rollouts are there too."""
    try:
        yield from parse_lines(log.read_bytes(), log.name)
    except (OSError, LogError, RecursionError):
        return


def _where(step: StepLog, groups: Sequence[Sequence[Line]], first: int) -> int | None:
    """The first place from `first` on at which groups fit a step: as many rollouts, and the same mean reward."""
    if not step.groups or step.reward is None:
        return None
    for start in range(first, len(groups) - step.groups + 1):
        mine = [line for group in groups[start : start + step.groups] for line in group]
        earned = [line.total for line in mine if line.total is not None]
        if len(mine) == step.rollouts and earned and abs(sum(earned) / len(earned) - step.reward.mean) < CLOSE:
            return start
    return None
