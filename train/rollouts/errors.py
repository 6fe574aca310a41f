"""Why rollouts cannot go on. Every message says what to do about it."""

from __future__ import annotations

from thresher.train.errors import TrainError


class RolloutError(TrainError):
    """Rollouts ended: something in them is broken that running them again will not mend."""

    code = "rollouts_failed"


class ScoringFailed(RolloutError):
    """The scorer, or the engine itself, raised: a bug, and no end of a search. The message names the task."""

    code = "scoring_failed"


class InfrastructureDown(RolloutError):
    """Group after group could not be run, whatever was tried."""

    code = "infrastructure_down"


class WeightsNotServed(RolloutError):
    """New weights were published, and what samples goes on with old ones."""

    code = "weights_not_served"
