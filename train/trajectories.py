"""Which searches a trajectory is made of."""

from __future__ import annotations

from collections.abc import Iterator

from thresher.engine.trajectory import Trajectory


def trajectories_of(trajectory: Trajectory) -> Iterator[Trajectory]:
    """A search and all that ran below it: sub-agents, rollouts, the collections of a federated one."""
    yield trajectory
    for part in trajectory.subagents:
        yield from trajectories_of(part)


def roots_of(trajectory: Trajectory) -> tuple[Trajectory, ...]:
    """The searches that a caller asked for: rollouts and collections each, where the trajectory only holds theirs."""
    if trajectory.opening or not trajectory.subagents:
        return (trajectory,)
    return tuple(root for part in trajectory.subagents for root in roots_of(part))
