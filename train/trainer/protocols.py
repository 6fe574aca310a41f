"""What the trainer needs of its surroundings: where groups come from, and where new weights go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.segments.segment import Segment

SegmentsOf = Callable[[Rollout], Sequence[Segment]]
"""The segments of a rollout that has a result."""


class GroupSource(Protocol):
    """What the trainer pulls groups from. Only the main process asks.

    A source may also have `state_dict() -> dict` (plain JSON values) and `load_state_dict(state)`: they go into each
    checkpoint and come back with `resume_from_checkpoint`. The state must be that of the groups handed over.
    """

    def next_groups(self, count: int) -> list[Group]:
        """The next groups, all complete. Blocks until there are `count`; fewer only where the tasks have run out.

        There may be more, to stand in for constant ones; no more than `count` have any spread.
        """

    def close(self) -> None:
        """Stop the rollouts. Safe to call twice."""


class WeightSync(Protocol):
    """Takes new weights to whatever samples."""

    def publish(self, model: Any, version: int) -> None:
        """Called on every process when training begins, and after each optimiser step that changed the weights.

        `model` is unwrapped: a `PreTrainedModel` or a `PeftModel`. It may be sharded.
        """
