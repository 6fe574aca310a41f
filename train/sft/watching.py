"""What happens around each step of a supervised run: the log, curves, checkpoints that count, and progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from thresher.train.monitoring.log import LOG_NAME, LogWriter, StepLog
from thresher.train.trainer.tracking import Tracker
from thresher.train.trainer.watching import Tell, checkpoint_saved


class SftWatch(TrainerCallback):  # type: ignore[misc]
    """Writes what a supervised run does, on the main process.

    Args:
        steps: optimiser steps of the whole run; `keep`: checkpoints.

    Attributes:
        loss: of the last step of this process; None before the first.
    """

    def __init__(self, out: Path, *, steps: int, keep: int, curves: Sequence[Tracker], tell: Tell) -> None:
        self.loss: float | None = None
        self._log = LogWriter(out / LOG_NAME)
        self._steps = steps
        self._keep = keep
        self._curves = curves
        self._tell = tell
        self._began = time.perf_counter()
        self._seen = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Time counts from here."""
        self._began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """A step is done."""
        if not logs or "loss" not in logs:
            return
        now = time.perf_counter()
        seen = float(logs.get("num_tokens", 0.0))
        log = StepLog(
            step=state.global_step,
            version=state.global_step,
            seconds=now - self._began,
            loss=float(logs["loss"]),
            lr=float(logs["learning_rate"]),
            grad_norm=float(logs.get("grad_norm", 0.0)),
            tokens=round(seen - self._seen) if seen > self._seen else None,
            progress=state.global_step / self._steps,
            # Not as `entropy`, whose fall is an alarm: here it is what is wanted.
            more={name: float(logs[name]) for name in ("mean_token_accuracy", "epoch", "entropy") if name in logs},
        )
        self._began, self._seen = now, seen
        self.loss = log.loss
        self._log.append(log)
        for curve in self._curves:
            curve.add(log.step, log.scalars())
        self._tell("step", {"step": log, "steps": self._steps})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written."""
        checkpoint_saved(Path(args.output_dir), state.global_step, keep=self._keep, tell=self._tell)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        for curve in self._curves:
            curve.close()
