"""What became of a run, as its folder tells it: a lock that is held, a model at the end, an error that was noted."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from thresher.corpus.paths import replace_file
from thresher.train.monitoring.log import StepLog

State = Literal["running", "finished", "interrupted", "failed", "unknown"]
FAILURE = "failure.json"
"""The error that ended a run; see `record_failure`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that ended a run. `at`: seconds since 1970."""

    error: str
    message: str
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.error}: {self.message}" if self.message else self.error


def held(path: Path) -> bool:
    """Whether a process holds the lock on a file (`flock`); False where there is no such file.

    The question is asked by taking a shared lock for a moment, so that a run which starts in that very moment would
    be refused. It reads as free on a file system that has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def record_failure(folder: Path, error: BaseException) -> None:
    """Note in a run's folder what ended it, whole or not at all. A run that goes on later makes it out of date."""
    record = {"error": type(error).__name__, "message": str(error), "at": time.time()}
    replace_file(folder / FAILURE, json.dumps(record) + "\n")


def read_failure(folder: Path, log: Path) -> Failure | None:
    """The error that ended a run; None if there was none, or if the log was written to since."""
    path = folder / FAILURE
    try:
        record = json.loads(path.read_bytes())
        if modified(path) < modified(log) or not isinstance(record, dict):
            return None
        at = record.get("at")
        kept = float(at) if isinstance(at, int | float) else modified(path)
        return Failure(str(record.get("error", "error")), str(record.get("message", "")), kept)
    except (OSError, ValueError, RecursionError):
        return None


def modified(path: Path) -> float:
    """When a file was last written, in seconds since 1970; 0 where it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def state_of(
    *,
    running: bool,
    exported: bool,
    settled: bool,
    steps: Sequence[StepLog],
    total: int | None,
    failure: Failure | None,
) -> tuple[State, str]:
    """The state of a run, and why it is said to be so.

    Args:
        exported: what the run is for lies there.
        settled: whether it can be told at all how the run ended.
    """
    done = steps[-1].step if steps else 0
    if running:
        return "running", ""
    if failure is not None:
        return "failed", str(failure)
    if exported and (total is None or not steps or done >= total):
        return "finished", ""
    if steps and (broken := _not_finite(steps[-1])):
        return "failed", f"{broken} is not a number at step {done:,}"
    if not settled:
        return "unknown", "there is neither a lock nor a model to tell it by"
    of = f" of {total:,}" if total is not None else ""
    when = f"after step {done:,}{of}" if steps else "before its first step"
    return "interrupted", f"it ended {when}; the same command goes on from the last checkpoint"


def _not_finite(step: StepLog) -> str:
    named = {"the loss": step.loss, "the norm of the gradient": step.grad_norm}
    return next((name for name, value in named.items() if value is not None and not math.isfinite(value)), "")
