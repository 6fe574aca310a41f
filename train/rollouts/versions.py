"""Versions of the weights: whole numbers, which samplers carry as text and turns are stamped with."""

from __future__ import annotations

import re
from collections.abc import Mapping

from thresher.engine.trajectory import Trajectory, TurnRecord

_NAME = re.compile(r"w([0-9]{1,15})")


def version_name(version: int) -> str:
    """The text of a version, as `HfSampler.exclusive(weights=…)` or a LoRA adapter's name takes it: 3 is `w3`.

    Raises:
        ValueError: it is negative.
    """
    if version < 0:
        raise ValueError(f"a version of weights is at least 0, got {version}")
    return f"w{version}"


def version_of(name: str) -> int | None:
    """The version that a text names; None if it names none, as a server's own fingerprint does."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def turn_versions(trajectory: Trajectory | None, began: Mapping[int, int]) -> tuple[int, ...]:
    """The version behind each turn of a search, those of its sub-agents left out.

    A turn has the version that its sampler stamped on it. Where that says nothing, it has the one that was current
    when it began, which is never newer than what sampled it.

    Args:
        began: that version by the number of the turn. A turn that has neither is left out.
    """
    if trajectory is None:
        return tuple(began[turn] for turn in sorted(began))
    versions = ((_stamped(turn), began.get(turn.index)) for turn in trajectory.turns)
    return tuple(
        known
        for stamped, current in versions
        for known in [current if stamped is None else stamped]
        if known is not None
    )


def _stamped(turn: TurnRecord) -> int | None:
    """What the sampler says. A server that samples with adapters names them as its model."""
    if turn.sampled is None:
        return None
    weights = version_of(turn.sampled.weights)
    return version_of(turn.sampled.model) if weights is None else weights
