"""Why a trajectory cannot be trained on. Every message says what to do about it."""

from __future__ import annotations

from thresher.train.errors import TrainError


class SegmentError(TrainError):
    """A trajectory cannot be made into training rows."""

    code = "untrainable_trajectory"


class MissingLogprobs(SegmentError):
    """A model sampled a turn, and its server gave no logprobs, without which there is no importance weight."""

    code = "missing_logprobs"


class NotWritable(SegmentError):
    """The student's style has no way to write this turn so that it is read back as the same."""

    code = "not_writable"


class NoLongerFits(SegmentError):
    """In the student's vocabulary a turn of the trajectory is longer than the context."""

    code = "no_longer_fits"
