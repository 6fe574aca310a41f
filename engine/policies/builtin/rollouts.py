"""How rollouts of the builtin policy differ: it is deterministic, so its widths and weights are what varies."""

from __future__ import annotations

import random
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from thresher.engine.policies.builtin.ranking import RankWeights

if TYPE_CHECKING:
    from thresher.engine.policies.builtin.policy import Settings

WEIGHT_SPREAD = 0.25
"""Weights are drawn from the tuned one times 1 ± this; the ranking is flat enough there that each stays good."""
WIDTHS_DOWN, WIDTHS_UP = 1, 2


def varied_settings(settings: Settings, seed: int) -> Settings:
    """Settings near `settings`: other widths of its searches, other weights of its guesses and of its ranking.

    One seed always gives the same ones, and seed 0 the settings themselves.
    """
    if seed == 0:
        return settings
    dice = random.Random(seed)

    def width(value: int) -> int:
        return max(1, value + dice.randint(-WIDTHS_DOWN, WIDTHS_UP))

    def weight(value: float) -> float:
        return value * dice.uniform(1 - WEIGHT_SPREAD, 1 + WEIGHT_SPREAD)

    rewriting = settings.rewriting
    return replace(
        settings,
        clauses=width(settings.clauses),
        frontier=width(settings.frontier),
        rewriting=replace(
            rewriting,
            anchor=weight(rewriting.anchor),
            kind=weight(rewriting.kind),
            sentence=weight(rewriting.sentence),
            inherit=weight(rewriting.inherit),
            parents=width(rewriting.parents),
            rewrites=width(rewriting.rewrites),
            per_parent=width(rewriting.per_parent),
        ),
        weights=RankWeights(*(weight(value) for value in astuple(settings.weights))),
    )
