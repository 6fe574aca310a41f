"""The log of a training run: one line of JSON for each optimiser step, written so that nothing is lost in a crash.

A line is written whole, in one call, and is on the disk before `LogWriter.append` returns. A process that is killed
while it writes leaves at most a torn last line, which the next writer cuts off and readers leave out. A run that is
resumed from a checkpoint writes some steps a second time: the later line of a step counts, and what an abandoned
stretch wrote above it does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from thresher.train.errors import TrainError
from thresher.train.lines import LineFile
from thresher.train.monitoring.means import FactMeans, MeanMax, Record, Spread
from thresher.train.rollouts.rollout import Group

FORMAT = 1
"""Version of the lines. A reader refuses newer ones, which may mean something else by a known name."""
LOG_NAME = "log.jsonl"


class LogError(TrainError):
    """A log cannot be read or written. The message names the file, the line and what to do."""

    code = "invalid_log"


class StepLog(Record):
    """One optimiser step. What a kind of training does not have is None or empty.

    Attributes:
        version: version of the weights after the step; `seconds`: of the whole step, rollouts included.
        reward: over the scored rollouts; `terms`: mean of every term, unweighted; `parts`: mean of what each added.
        floored: share of scored rollouts whose penalties the floor took back in part.
        groups: all; `constant_groups`: those with the same reward throughout, which teach nothing; `refilled`: those
            that were asked for in place of constant ones.
        rollouts: all; `faults`: those without a score, since an infrastructure fault outlived its retries.
        stop_reasons: share of scored rollouts that ended so.
        gradient_share: share of the gradient's weight by the number of segments of a rollout ("1", "2-3", …).
        conformance: distance of the trainer's logprobs from the sampler's; `staleness`: in versions.
        entropy: mean over trained tokens, in nats; `clip_fraction`: share of trained tokens that were clipped.
        more: any other number that is worth a curve, by name.
    """

    kind: Literal["step"] = "step"
    format: int = FORMAT
    step: int = Field(ge=0)
    version: int = 0
    seconds: float = 0.0
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    entropy: float | None = None
    kl: float | None = None
    clip_fraction: float | None = None
    progress: float | None = None
    reward: Spread | None = None
    terms: dict[str, float] = Field(default_factory=dict)
    parts: dict[str, float] = Field(default_factory=dict)
    floored: float = 0.0
    facts: FactMeans | None = None
    stop_reasons: dict[str, float] = Field(default_factory=dict)
    groups: int = 0
    constant_groups: int = 0
    refilled: int = 0
    rollouts: int = 0
    faults: int = 0
    segments: int | None = None
    tokens: int | None = None
    gradient_share: dict[str, float] = Field(default_factory=dict)
    conformance: MeanMax | None = None
    staleness: MeanMax | None = None
    utilisation: float | None = None
    more: dict[str, float] = Field(default_factory=dict)

    @classmethod
    def of(cls, groups: Iterable[Group], *, step: int, **more: Any) -> Self:
        """The log of a step that trained on these groups; `more` are other fields by name, `more={…}` among them.

        Rollouts that a fault took away are counted and are in no mean.
        """
        groups = list(groups)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        scored = [rollout for group in groups for rollout in group.scored]
        rewards = [rollout.reward for rollout in scored if rollout.reward is not None]
        totals = [reward.total for reward in rewards]
        facts = [rollout.facts for rollout in scored if rollout.facts is not None]
        endings = [fact.stop_reason for fact in facts]
        measured: dict[str, Any] = {
            "reward": Spread(mean=fmean(totals), std=pstdev(totals)) if totals else None,
            "terms": _means([reward.terms for reward in rewards]),
            "parts": _means([reward.parts for reward in rewards], missing=0.0),
            "floored": fmean(reward.floored for reward in rewards) if rewards else 0.0,
            "facts": FactMeans.of(scored),
            "stop_reasons": {reason: endings.count(reason) / len(endings) for reason in sorted(set(endings))},
            "groups": len(groups),
            "constant_groups": sum(group.constant for group in groups),
            "rollouts": len(rollouts),
            "faults": len(rollouts) - len(scored),
        }
        return cls(step=step, **{**measured, **more})

    def scalars(self) -> dict[str, float]:
        """Every number by its path (`terms/recall`, `reward/mean`), as TensorBoard and W&B want them."""
        return dict(_flat(self.model_dump(exclude={"kind", "format", "step"})))


class LogWriter:
    """Appends steps to a log; one process at a time.

    Args:
        path: made with its folder if it is not there. A torn last line is cut off; `cut` says how many bytes it had.

    Raises:
        LogError: another process writes to it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = LineFile(path)
        except BlockingIOError as error:
            raise LogError(
                f"another process writes {path}: wait for it, or give this run a folder of its own"
            ) from error
        self.cut = self._file.cut

    def append(self, log: StepLog) -> None:
        """Write one step. It is on the disk when this returns; if it raises, the file holds no part of it."""
        self._file.append(log.model_dump_json(exclude_none=True).encode() + b"\n", sync=True)

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: Path) -> list[StepLog]:
    """The steps of a run in order, each once. `path` is the log or the folder that holds it.

    Raises:
        LogError: there is none, or a line is not a step that this version knows; a torn last line is left out.
    """
    path = log_path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise LogError(f"there is no log at {path}: name the folder that the training run writes (--out)") from error
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror or error}") from error
    return rewound(parse_lines(data, str(path)))


def log_path(path: Path) -> Path:
    """Where the log of a run is: `path` itself, or `log.jsonl` in it."""
    return path / LOG_NAME if path.is_dir() or not path.suffix else path


def parse_lines(data: bytes, name: str, *, first: int = 1) -> Iterator[StepLog]:
    """The steps in a piece of a log that begins with line number `first`. What follows the last line end is left out.

    Raises:
        LogError: a line is not a step; the message begins with `name` and the line's number.
    """
    complete, _, _ = data.rpartition(b"\n")
    for number, line in enumerate(complete.split(b"\n"), first):
        if line.strip():
            yield _parse(line, f"{name}:{number}")


def rewound(steps: Iterable[StepLog]) -> list[StepLog]:
    """A run as it counts: a step that comes again takes the place of the first and of all after it."""
    kept: list[StepLog] = []
    for step in steps:
        while kept and kept[-1].step >= step.step:
            kept.pop()
        kept.append(step)
    return kept


class LogFollower:
    """Reads a log while it grows: `poll` gives the steps that were completed since the last one.

    A log that was replaced by a shorter one is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = log_path(path)
        self._offset = self._line = 0

    def poll(self) -> list[StepLog]:
        """New steps, in the order of the file; none if it is not there yet.

        Raises:
            LogError: a line is not a step.
        """
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = self._line = 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        steps = list(parse_lines(complete, str(self.path), first=self._line + 1))
        self._offset += len(complete)
        self._line += complete.count(b"\n")
        return steps


def _parse(line: bytes, where: str) -> StepLog:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise LogError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise LogError(f"{where}: a step is a JSON object, got {type(record).__name__}")
    version = record.get("format", FORMAT)
    if isinstance(version, int) and version > FORMAT:
        raise LogError(f"{where}: format {version} is newer than this version of thresher reads ({FORMAT}): update it")
    try:
        return StepLog.model_validate(record)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise LogError(f"{where}: not a step of a log: {faults}") from error


def _means(records: Sequence[Mapping[str, float]], *, missing: float | None = None) -> dict[str, float]:
    """Mean of each name, over the records that have it or, with `missing`, over all."""
    names = dict.fromkeys(name for record in records for name in record)
    return {
        name: fmean(record.get(name, missing or 0.0) for record in records if missing is not None or name in record)
        for name in names
    }


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
