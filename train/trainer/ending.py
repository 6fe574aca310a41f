"""What a run says of itself when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thresher.train.monitoring.log import StepLog
from thresher.train.trainer.evaluating import Evaluation


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run made.

    Attributes:
        steps: optimiser steps of the whole run; `resumed`: the step that this process went on from, 0 for a new run.
        model, adapter: folders; None on processes other than the first.
        last: the log of the last step of this process.
        warnings: what makes the run other than it seems, as that no step changed the weights.
    """

    out: str
    steps: int
    resumed: int
    version: int
    seconds: float
    model: str | None = None
    adapter: str | None = None
    before: Evaluation | None = None
    after: Evaluation | None = None
    last: StepLog | None = None
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **asdict(self),
            **{
                name: value and value.model_dump(mode="json", exclude_none=True)
                for name, value in (("before", self.before), ("after", self.after), ("last", self.last))
            },
        }


def unchanged(steps: Sequence[StepLog]) -> tuple[str, ...]:
    """A warning if no step of a run changed the weights, with the reason."""
    if not steps or steps[-1].version:
        return ()
    groups = sum(step.groups for step in steps)
    constant = sum(step.constant_groups for step in steps)
    why = (
        "the rollouts of each group all earned the same, so there was nothing to learn from. Take tasks that are "
        "solved now and then (`thresher train doctor` with this model) or larger groups, or begin with `thresher train "
        "sft`"
        if constant == groups
        else "no rollout of the others has tokens that the model sampled. See its searches (log.rollouts=true)"
    )
    return (
        f"nothing was trained: none of {len(steps):,} steps changed the weights, and the model is the one that the run "
        f"began with. {constant:,} of {groups:,} groups were constant: {why}",
    )
