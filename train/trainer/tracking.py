"""Curves for those who want them besides the log: TensorBoard files, or Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from thresher.train.errors import SettingsError
from thresher.train.trainer.settings import Log


class Tracker(Protocol):
    """Takes numbers by name."""

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Those of one step."""

    def close(self) -> None:
        """Write what is left."""


def trackers(log: Log, out: Path, *, step: int, config: Mapping[str, Any]) -> list[Tracker]:
    """Those that were asked for; `step` is that of the checkpoint a run goes on from: what came after it is dropped.

    Raises:
        SettingsError: a package is missing.
    """
    wanted: list[Tracker] = []
    if log.tensorboard:
        wanted.append(_TensorBoard(out / "tensorboard", step))
    if log.wandb:
        wanted.append(_Wandb(log.wandb, out, step, config))
    return wanted


class _TensorBoard:
    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SettingsError(
                "log.tensorboard needs tensorboard: pip install tensorboard, or leave it out"
            ) from error
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    def __init__(self, project: str, out: Path, step: int, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise SettingsError("log.wandb needs wandb: pip install wandb, or leave it out") from error
        # The folder names the run, so that one that goes on is one curve; steps of before are kept as they are.
        self._run: Any = wandb.init(project=project, dir=str(out), id=out.name, resume="allow", config=dict(config))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        self._run.finish()
