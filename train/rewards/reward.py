"""What a rollout earned, term by term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reward:
    """A rollout's reward and all that it is made of.

    Attributes:
        total: what training uses.
        terms: every term by name, unweighted, in its own units; all of them are logged.
        parts: what each term adds to the total before it is clamped: weight × term, penalties negative.
        floored: whether the floor took part of the penalties back.
    """

    total: float
    terms: Mapping[str, float]
    parts: Mapping[str, float]
    floored: bool = False
