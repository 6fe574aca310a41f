"""Toggled budgets: groups search under smaller limits than the run's own, turn and turn about.

A policy that always has the full budget learns to use it up. Kimi K2.5 (Moonshot AI, 2026) alternates, in the course of
training, between phases with a token budget and phases without one, so that a model learns to do with little and still
gains from more. Here it alternates from group to group: all rollouts of a group have the same budget, since a baseline
over several would reward the larger one. A policy is told of it as in serving, by the usage line and the notices; a
limit of turns it is not told. What a search earns is measured against the limits that it had.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from thresher.engine.requests import Effort, SearchRequest
from thresher.train.rollouts.rollout import Group

FULL = "full"


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """Limits that take the place of a request's own. None leaves one as it is; without any it is the full budget.

    Attributes:
        max_tokens: size of the context; the soft and hard limits go along with it.
        max_turns: cap on model calls; `effort` alone sets the cap that goes with it.
        max_critical_steps: cap on turns one after another.
    """

    max_tokens: int | None = None
    max_turns: int | None = None
    effort: Effort | None = None
    max_critical_steps: int | None = None

    @property
    def name(self) -> str:
        """What logs and rollouts call it: `max_tokens=8000,max_turns=4`, or `full`."""
        fields = ("effort", "max_critical_steps", "max_tokens", "max_turns")
        given = {name: value for name in fields if (value := getattr(self, name)) is not None}
        return ",".join(f"{name}={value}" for name, value in given.items()) or FULL

    def applied(self, request: SearchRequest) -> SearchRequest:
        """The request under this budget.

        Raises:
            InvalidRequest: a limit is out of range.
        """
        turns = self.max_turns
        if turns is None and self.effort is None:
            turns = request.max_turns
        return replace(
            request,
            max_turns=turns,
            effort=self.effort or request.effort,
            max_tokens=self.max_tokens or request.max_tokens,
            max_critical_steps=self.max_critical_steps or request.max_critical_steps,
        )


def budget_of(budgets: Sequence[SearchBudget], *, seed: int, group: int) -> SearchBudget | None:
    """The budget of a group by its number; None without any to draw from.

    Of so many consecutive groups as there are budgets each has another one, in an order that is drawn anew: tasks that
    come in a fixed order do not always meet the same one. One that is named twice comes twice as often. The draw
    depends on nothing else, so that a run which goes on draws the same.
    """
    if not budgets:
        return None
    block, place = divmod(group, len(budgets))
    order = list(budgets)
    random.Random(f"{seed}/budgets/{block}").shuffle(order)
    return order[place]


def budget_figures(groups: Sequence[Group]) -> dict[str, float]:
    """For each budget of these groups: how many had it, their mean reward, and tokens written a rollout."""
    figures: dict[str, float] = {}
    for name in dict.fromkeys(group.budget for group in groups if group.budget):
        own = [group for group in groups if group.budget == name]
        scored = [rollout for group in own for rollout in group.scored]
        rewards = [rollout.reward.total for rollout in scored if rollout.reward is not None]
        tokens = [rollout.facts.completion_tokens for rollout in scored if rollout.facts is not None]
        figures[f"budgets/{name}/groups"] = float(len(own))
        if rewards:
            figures[f"budgets/{name}/reward"] = fmean(rewards)
        if tokens:
            figures[f"budgets/{name}/completion_tokens"] = fmean(tokens)
    return figures
