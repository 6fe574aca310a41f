"""A policy that plays a fixed list of decisions: for tests, and for replaying what another policy did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thresher.engine.errors import PolicyError
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.trajectory import Trajectory

Step = Decision | Callable[[View], Decision]


class ScriptedPolicy:
    """Plays `steps` in order. A step may be a function of the view, for scripts that react."""

    name = "scripted"

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        self._position = 0

    async def decide(self, view: View) -> Decision:
        """The next step; running out of steps is an error, so that no script ends by accident."""
        if self._position >= len(self._steps):
            raise PolicyError(f"the script has only {len(self._steps)} steps; end it with a finish call")
        step = self._steps[self._position]
        self._position += 1
        return step if isinstance(step, Decision) else step(view)

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory) -> ScriptedPolicy:
        """A script that makes the same calls again, for instance on a changed index."""
        return cls(
            [
                Decision(tuple(ToolUse(call.name, call.arguments) for call in turn.calls), turn.reasoning)
                for turn in trajectory.turns
            ]
        )
