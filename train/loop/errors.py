"""Errors of the loop."""

from __future__ import annotations

from thresher.train.errors import TrainError


class LoopError(TrainError):
    """A step of the loop cannot be made as things stand; the message says what to do."""

    code = "loop_refused"


class ReleasesError(LoopError):
    """The files of releases cannot be read; the message names the file."""

    code = "invalid_releases"


class StaleDecision(LoopError):
    """Somebody decided otherwise meanwhile; nothing was changed."""

    code = "stale_decision"
