"""Means of what the searches of one step were like, and of what they earned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from thresher.engine.tools.finish import FINISH
from thresher.train.rewards.facts import Facts
from thresher.train.rollouts.rollout import Rollout

MANY, MOST = 15, 0.9
"""Naming so large a share of so many passages is returning everything; of few, one may need them all."""


class Record(BaseModel):
    """A piece of a log."""

    # A field that is not known is an error that names it. NaN and Infinity are news, so they are written as such.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Spread(Record):
    """Mean and population standard deviation over rollouts."""

    mean: float
    std: float = 0.0


class MeanMax(Record):
    """Mean and largest value."""

    mean: float
    max: float


class FactMeans(Record):
    """What the searches of a step were like: means over the scored rollouts of what `Facts` says of each.

    Shares lie in [0, 1]. `*_rate` and `*_share` but for those listed first are ratios of sums over all rollouts, so
    that a rollout with one passage does not count like one with fifty.

    Attributes:
        no_search, one_search: share of rollouts that never searched; that searched once and then ended themselves.
        no_valid_call: share of rollouts in which not one call could be run.
        pruned_all: share of rollouts that were shown something and had thrown all of it out at the end.
        named_all: share of rollouts that named at least 90 % of the passages that they were shown when they finished,
            where these were 15 or more.
        empty_handed: share of rollouts that returned nothing.
        cites_unseen: share of rollouts that named ids which were never shown; `unseen_cited`: such ids a rollout.
        malformed_rate: calls and replies that could not be run, of all calls and replies without one.
        shown, returned: distinct documents a rollout; `returned_share`: returned of shown ones.
        pruned_share: passages out of the context at the end, of all shown; `pruned_gold_share`: gold of pruned ones.
        sufficient, insufficient: share of rollouts that said so; the others did not say.
        prune_streak: prune calls in a row.
        reasoning_tokens: a rollout; `reasoning_tokens_per_turn`: of all turns.
        answer_shown, answer_returned: over rollouts of tasks with answers; None if there were none.
        useful_share: sub-agents with evidence that was returned, of all; None without sub-agents.
    """

    no_search: float = 0.0
    one_search: float = 0.0
    no_valid_call: float = 0.0
    pruned_all: float = 0.0
    named_all: float = 0.0
    empty_handed: float = 0.0
    cites_unseen: float = 0.0
    searches: float = 0.0
    turns: float = 0.0
    calls: float = 0.0
    malformed_rate: float = 0.0
    shown: float = 0.0
    returned: float = 0.0
    returned_share: float = 0.0
    pruned_share: float = 0.0
    pruned_gold_share: float = 0.0
    prune_streak: float = 0.0
    unseen_cited: float = 0.0
    finished: float = 0.0
    sufficient: float = 0.0
    insufficient: float = 0.0
    turns_left: float = 0.0
    tokens_left: float = 0.0
    answer_shown: float | None = None
    answer_returned: float | None = None
    reasoning_tokens: float = 0.0
    reasoning_tokens_per_turn: float = 0.0
    subagents: float = 0.0
    finished_subagents: float = 0.0
    useful_subagents: float = 0.0
    useful_share: float | None = None
    parallel: float = 0.0
    critical_steps: float = 0.0

    @classmethod
    def of(cls, rollouts: Sequence[Rollout]) -> FactMeans | None:
        """Over the rollouts that have facts; None if none has."""
        scored = [(rollout, rollout.facts) for rollout in rollouts if rollout.facts is not None]
        if not scored:
            return None
        facts = [fact for _, fact in scored]
        asked = [fact for fact in facts if fact.has_answers]
        subagents = sum(fact.subagents for fact in facts)
        return cls(
            no_search=fmean(fact.searches == 0 for fact in facts),
            one_search=fmean(fact.searches == 1 and fact.finished for fact in facts),
            no_valid_call=fmean(fact.malformed >= _attempts(fact) for fact in facts),
            pruned_all=fmean(0 < fact.pruned == _passages(rollout, fact) for rollout, fact in scored),
            named_all=fmean(_named_all(rollout, fact) for rollout, fact in scored),
            cites_unseen=fmean(fact.unseen_cited > 0 for fact in facts),
            empty_handed=fmean(not fact.returned for fact in facts),
            searches=fmean(fact.searches for fact in facts),
            turns=fmean(fact.turns for fact in facts),
            calls=fmean(fact.calls for fact in facts),
            malformed_rate=_ratio((fact.malformed for fact in facts), map(_attempts, facts)),
            shown=fmean(len(fact.shown) for fact in facts),
            returned=fmean(len(fact.returned) for fact in facts),
            returned_share=_ratio((len(fact.returned) for fact in facts), (len(fact.shown) for fact in facts)),
            pruned_share=_ratio((fact.pruned for fact in facts), (_passages(*pair) for pair in scored)),
            pruned_gold_share=_ratio((fact.pruned_gold for fact in facts), (fact.pruned for fact in facts)),
            prune_streak=fmean(fact.prune_streak for fact in facts),
            unseen_cited=fmean(fact.unseen_cited for fact in facts),
            finished=fmean(fact.finished for fact in facts),
            sufficient=fmean(fact.sufficient is True for fact in facts),
            insufficient=fmean(fact.sufficient is False for fact in facts),
            turns_left=fmean(fact.turns_left for fact in facts),
            tokens_left=fmean(fact.tokens_left for fact in facts),
            answer_shown=fmean(fact.answer_shown for fact in asked) if asked else None,
            answer_returned=fmean(fact.answer_returned for fact in asked) if asked else None,
            reasoning_tokens=fmean(fact.reasoning_tokens for fact in facts),
            reasoning_tokens_per_turn=_ratio((f.reasoning_tokens for f in facts), (f.turns for f in facts)),
            subagents=subagents / len(facts),
            finished_subagents=fmean(fact.finished_subagents for fact in facts),
            useful_subagents=fmean(fact.useful_subagents for fact in facts),
            useful_share=sum(fact.useful_subagents for fact in facts) / subagents if subagents else None,
            parallel=fmean(fact.parallel for fact in facts),
            critical_steps=fmean(fact.critical_steps for fact in facts),
        )


def _attempts(facts: Facts) -> int:
    """Calls, and replies without one, which are malformed and no calls; 1 at least."""
    return max(1, facts.calls, facts.malformed)


def _passages(rollout: Rollout, facts: Facts) -> int:
    """Passages that were shown: counted where there is a trajectory, else no fewer than there are documents."""
    trajectory = rollout.trajectory
    return max(len(facts.shown), facts.pruned) if trajectory is None else len(trajectory.evidence)


def _named_all(rollout: Rollout, facts: Facts) -> bool:
    """Whether the last `finish` named most of what was shown; without a trajectory, whether that many are returned."""
    trajectory = rollout.trajectory
    if not facts.finished:
        return False
    if trajectory is None or not trajectory.turns:
        return len(facts.shown) >= MANY and len(facts.returned) >= MOST * len(facts.shown)
    named: set[str] = set()
    for call in trajectory.turns[-1].calls:
        if call.name == FINISH.name:
            try:
                named.update(map(str, json.loads(call.arguments)["evidence_ids"]))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
    shown = {evidence.id for evidence in trajectory.evidence}
    return len(shown) >= MANY and len(named & shown) >= MOST * len(shown)


def _ratio(parts: Iterable[float], wholes: Iterable[float]) -> float:
    whole = sum(wholes)
    return sum(parts) / whole if whole else 0.0
