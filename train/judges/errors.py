"""What can go wrong with a judge. Each message says what to do next."""

from __future__ import annotations

from thresher.train.errors import TrainError


class JudgeError(TrainError):
    """A judge cannot be used as it was asked for."""

    code = "judge_failed"


class RubricError(JudgeError):
    """A rubric cannot be used as given; the message names the file and the key."""

    code = "invalid_rubric"


class JudgeUnavailable(JudgeError):
    """The judge gave no answer, whatever was tried: a fault of the infrastructure, never a score.

    Attributes:
        passing: another try may do better.
    """

    code = "judge_unavailable"

    def __init__(self, message: str, *, passing: bool = True) -> None:
        super().__init__(message)
        self.passing = passing
