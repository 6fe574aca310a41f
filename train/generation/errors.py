"""Errors of making tasks. Each message says what happened and what to do next."""

from __future__ import annotations

from thresher.train.errors import TrainError


class GenerationError(TrainError):
    """No tasks can be made as asked for."""

    code = "generation_failed"
