"""What a run asks of a weight sync, whatever its kind."""

from __future__ import annotations

from typing import Any, Protocol

from thresher.corpus.collection import Collection
from thresher.engine.policy import Policy


class Weights(Protocol):
    """The weights that rollouts sample from. Made before the rollouts start; closed after they have ended.

    It is the trainer's `WeightSync`, and what makes a policy for each search.
    """

    def __call__(self, collection: Collection) -> Policy:
        """A policy for one search, with the newest weights."""

    def publish(self, model: Any, version: int) -> None:
        """Sample from these weights from now on. Raises `SyncError` if what samples cannot be brought there."""

    def sampling(self) -> None:
        """The trainer waits for rollouts: it does not touch the model until `training`."""

    def training(self) -> None:
        """The trainer goes on: what samples leaves the model alone."""

    def close(self) -> None:
        """Let go of the model, the servers and the files."""


def unwrapped(model: Any) -> Any:
    """The model behind what accelerate wraps around it."""
    from accelerate.utils import extract_model_from_parallel

    return extract_model_from_parallel(model, keep_fp32_wrapper=True)
