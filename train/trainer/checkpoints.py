"""Checkpoints that a kill cannot halve: each is marked when it is whole, and only marked ones count."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from thresher.corpus.paths import sync_directory
from thresher.train.errors import RunError

COMPLETE = ".complete"


def complete_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints that were written to their end, oldest first."""
    found = [path for path in folder.glob("checkpoint-*") if (path / COMPLETE).is_file()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def mark_complete(checkpoint: Path, state: dict[str, Any], *, keep: int) -> None:
    """Say that a checkpoint is whole, durably; older whole ones beyond the last `keep` go only then."""
    for path in checkpoint.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    with (checkpoint / COMPLETE).open("w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    for folder in (checkpoint, checkpoint.parent):  # a power loss must not take the names of what replaces the old ones
        sync_directory(folder)
    for old in complete_checkpoints(checkpoint.parent)[:-keep]:
        (old / COMPLETE).unlink()  # so that half of it is not taken for a whole one
        shutil.rmtree(old, ignore_errors=True)


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from; None for a new run. What a killed process left unfinished is removed.

    Raises:
        RunError: it cannot be removed.
    """
    whole = complete_checkpoints(folder)
    for path in folder.glob("checkpoint-*"):
        if path not in whole:
            try:
                shutil.rmtree(path)
            except OSError as error:
                raise RunError(f"the unfinished checkpoint {path} cannot be removed: {error.strerror}") from error
    return whole[-1] if whole else None
