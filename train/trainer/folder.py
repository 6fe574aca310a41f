"""The folder of a run: one process at a time trains there, and what it holds is of one run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from thresher.train.errors import RunError
from thresher.train.monitoring.states import record_failure
from thresher.train.trainer.checkpoints import complete_checkpoints
from thresher.train.trainer.settings_files import FILE, check_same, load_settings, write_settings

S = TypeVar("S", bound=BaseModel)
LOCK = ".lock"
MADE = ("log.jsonl", "evaluations.jsonl", "rollouts.jsonl", "examples.jsonl")
"""What runs write that would be another with other settings."""


@contextmanager
def run_folder(out: Path, settings: S, free: Iterable[str]) -> Iterator[Path]:
    """Make the folder, or make sure that the run in it is this one; no other process may have it meanwhile.

    Settings hold a run only once it has made something: one that failed at its first look at them may be asked for
    otherwise.

    Args:
        free: dotted keys that a run which goes on may change.

    Raises:
        RunError: another process trains there, or a run of another kind is in it.
        SettingsError: its run began with other settings.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"another process trains in {out}: wait for it, or name another --out folder") from error
        if begun(out):
            if not (out / FILE).exists():
                raise RunError(f"{out} holds a run of another kind: name another --out folder")
            check_same(load_settings(type(settings), out), settings, free)
        write_settings(out, settings)
        try:
            yield out
        except Exception as error:
            with suppress(OSError):  # the error itself matters more than a note of it, for which there may be no space
                record_failure(out, error)
            raise
    finally:
        os.close(lock)


def begun(out: Path) -> bool:
    """Whether a run has made anything here."""
    made = any((out / name).is_file() and (out / name).stat().st_size for name in MADE)
    return made or bool(complete_checkpoints(out / "checkpoints"))
