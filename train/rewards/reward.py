"""What a rollout earned, term by term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thresher.train.rewards import swarm, terms
from thresher.train.rewards.added import added_term, added_terms
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import ProfileError, RewardProfile

EARNED = (
    "f_beta",
    "trajectory_recall",
    "answer_found",
    "answer_shown",
    "answer_in_words",
    "abstention",
    "judge",
    "parallel",
    "finish",
)
"""Terms that add to a reward."""
CONDUCT = ("prune", "turns", "early", "stalled", "claim", "doubt", "excess", "idle", "length", "steps")
"""Penalties for how a search was done: they take no reward below the floor."""
RULES = ("malformed", "unseen")
"""Penalties for breaking the rules of the tools: they come off beneath the floor."""


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


def reward_of(facts: Facts, profile: RewardProfile, *, progress: float = 1.0) -> Reward:
    """The reward of a search.

    With E for what was earned, C and R for the penalties for conduct and for broken rules (the names are in `EARNED`,
    `CONDUCT` and `RULES`), and ε for the floor:

        total = clamp(E − C, min(ε, E), E) − R

    Without broken rules that is the clamp of Context-1 (2026). R comes off beneath the floor, because a floor that
    held for it too would make a failed search with malformed calls worth as much as one without: every step that
    replaces a good call by one that cannot be run has to cost something, also where nothing was found. So a search
    that only wrote malformed calls earns less than any that wrote none.

    A judge (`judge`) is among what is earned. It adds between 0 and its weight to a total, and exactly 0
    to one of a search that breaks rules. So it never lifts a search above another whose total without judges is better
    by more than that weight.

    Terms that installed packages add are earned (`profile.earns`) or are for conduct (`profile.costs`). What a package
    pays is not checked against the policies that cheat until `thresher train hacks` is run with the profile.

    Args:
        progress: of the training, in [0, 1]: anneals β and λ.

    Raises:
        ProfileError: an added term has the name of one of ours, is not installed, or gave no number in [0, 1].

    Returns:
        A total in [−(malformed + unseen_cap), sum of the weights of what can be earned].
    """
    added = _added_weights(profile)
    values = _terms(facts, profile, progress) | added_terms(facts, added)
    parts = {name: weight * values[name] for name, weight in {**_weights(profile, progress), **added}.items()}
    earned = sum(parts[name] for name in (*EARNED, *profile.earns))
    conduct = sum(parts[name] for name in (*CONDUCT, *profile.costs))  # negative, as all penalties are
    floor = min(profile.floor, earned)
    total = max(earned + conduct, floor) + sum(parts[name] for name in RULES)
    return Reward(total=total, terms=values, parts=parts, floored=earned + conduct < floor)


def check_added(profile: RewardProfile) -> None:
    """Make sure that all terms which a profile takes from packages are there, before anything is run for it.

    Raises:
        ProfileError: one has the name of one of ours, or is not installed.
        PluginError: one cannot be imported.
    """
    for name in _added_weights(profile):
        added_term(name)


def _added_weights(profile: RewardProfile) -> dict[str, float]:
    """Of every term that packages add, those of penalties negative."""
    added = {**profile.earns, **{name: -weight for name, weight in profile.costs.items()}}
    if clash := sorted(added.keys() & {*EARNED, *CONDUCT, *RULES}):
        raise ProfileError(f"reward profile {profile.name!r}: {', '.join(clash)} are terms of ours, not of a package")
    return added


def _weights(profile: RewardProfile, progress: float) -> dict[str, float]:
    """Of every term, those of penalties negative. Penalties that are in their own units have ±1."""

    def swarm_weight(start: float) -> float:
        return terms.annealed(start, 0.0, progress, until=profile.swarm_until)

    return {
        "f_beta": profile.f_beta,
        "trajectory_recall": profile.trajectory_recall,
        "answer_found": profile.answer_found,
        "answer_shown": profile.answer_shown,
        "answer_in_words": profile.answer_in_words,
        "abstention": profile.abstention,
        "judge": profile.judge,
        "parallel": swarm_weight(profile.parallel),
        "finish": swarm_weight(profile.finish),
        "prune": -1.0,
        "turns": -1.0,
        "early": -profile.early,
        "stalled": -profile.stalled,
        "claim": -profile.claim,
        "doubt": -profile.doubt,
        "excess": -profile.excess,
        "idle": -profile.idle,
        "length": -profile.length,
        "steps": -profile.steps,
        "malformed": -profile.malformed,
        "unseen": -1.0,
    }


def _terms(facts: Facts, profile: RewardProfile, progress: float) -> dict[str, float]:
    allowed = terms.allowance(facts, least=profile.allowed_documents, per_gold=profile.allowed_per_gold)
    searches = profile.honest_searches
    return {
        "f_beta": terms.f_beta(facts, terms.annealed(profile.beta_start, profile.beta_end, progress)),
        "trajectory_recall": terms.trajectory_recall(facts),
        "answer_found": terms.answer_found(facts, allowed=allowed),
        "answer_shown": terms.answer_shown(facts),
        "answer_in_words": terms.answer_in_words(facts),
        "abstention": terms.abstention(facts, searches=searches, unsaid=profile.unsaid),
        "judge": terms.judged(facts),
        "parallel": swarm.parallel(facts),
        "finish": swarm.finish(facts),
        "prune": terms.prune_streak(facts, free=profile.prune_free, each=profile.prune_each, cap=profile.prune_cap),
        "turns": terms.turn_excess(facts, start=profile.turns_start, end=profile.turns_end, most=profile.turns_penalty),
        "early": terms.early_stop(facts, searches=searches, honest=profile.early_honest),
        "stalled": terms.stalled(facts),
        "claim": terms.false_claim(facts),
        "doubt": terms.false_doubt(facts),
        "excess": terms.excess(facts, allowed=allowed),
        "idle": swarm.idle(facts),
        "length": terms.length_cost(facts, scale=profile.length_scale, k=profile.length_k, q=profile.length_q),
        "steps": terms.steps_cost(facts, scale=profile.steps_scale, k=profile.length_k, q=profile.length_q),
        "malformed": terms.malformed(facts, tolerance=profile.malformed_tolerance),
        "unseen": terms.unseen_citations(facts, each=profile.unseen_each, cap=profile.unseen_cap),
    }
