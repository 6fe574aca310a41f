"""Errors of the trainer. Each stops training before the optimiser step; the last checkpoint stays as it is."""

from __future__ import annotations

from thresher.train.errors import TrainError


class TrainerError(TrainError):
    """Base of every error that the trainer raises on purpose. `code` is stable and machine-readable."""

    code = "trainer_error"


class RowTooLong(TrainerError):
    """A segment does not fit the model or the limit. It is not cut: a cut row trains tokens in another context."""

    code = "row_too_long"


class ConformanceError(TrainerError):
    """The trainer and the sampler do not compute the same logprobs for the same tokens, or it cannot be told."""

    code = "conformance"


class Diverged(TrainerError):
    """The loss or the gradient is not a number any more."""

    code = "diverged"


class NoGroups(TrainerError):
    """The source has no more groups."""

    code = "no_groups"
