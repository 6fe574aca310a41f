"""Rollouts of the builtin policy that differ: it is deterministic, so its widths and weights are what varies."""

from __future__ import annotations

import random
from dataclasses import astuple, replace

from thresher.engine.policies.builtin.choosing import Choices, Drawing
from thresher.engine.policies.builtin.policy import BuiltinPolicy, Settings
from thresher.engine.policies.builtin.ranking import RankWeights

WEIGHT_SPREAD = 0.25
"""Weights are drawn from the tuned one times 1 ± this; the ranking is flat enough there that each stays good."""
WIDTHS_DOWN, WIDTHS_UP = 1, 2


def varied(policy: BuiltinPolicy, seed: int) -> BuiltinPolicy:
    """The policy of rollout `seed`; 0 is the policy itself. One seed always gives the same one."""
    if seed == 0:
        return policy
    choices = policy._choices
    if choices is not None and isinstance(choices.chooser, Drawing):
        # In training what varies is what is drawn, so that the chance of each choice is known.
        drawn = Choices(choices.weights, choices.chooser.reseeded(seed))
        return BuiltinPolicy(policy._corpus, policy._settings, drawn)
    return BuiltinPolicy(policy._corpus, varied_settings(policy._settings, seed), choices)


def varied_settings(settings: Settings, seed: int) -> Settings:
    """Settings near `settings`: other widths of its searches, other weights of its guesses and of its ranking."""
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
