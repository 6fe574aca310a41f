"""The terms of a swarm: what is paid for handing parts of a question to sub-agents, while that is learned.

The idea is that of parallel-agent learning (Kimi K2.5, 2026): pay for running sub-agents at once and for their
finishing, and anneal both to exactly 0. Paid by count alone, ten trivial tasks and a wrong answer would earn more than
honest work; here both count only what the outcome bears out.
"""

from __future__ import annotations

from thresher.train.rewards.facts import Facts


def gate(facts: Facts) -> float:
    """What the outcome bears out, 0 or 1: the answer stands in what was returned.

    Without an answer that can be looked for: all gold was returned. With neither, nothing is ever paid.
    """
    if facts.has_answers and facts.findable:
        return float(facts.answer_returned)
    return float(bool(facts.gold) and facts.gold <= set(facts.returned))


def parallel(facts: Facts) -> float:
    """Share of the sub-agents that ran beside another and were of use, in [0, 1], times `gate`."""
    if not facts.subagents:
        return 0.0
    return gate(facts) * min(facts.parallel, facts.useful_subagents, facts.subagents) / facts.subagents


def finish(facts: Facts) -> float:
    """Share of the sub-agents that ended by themselves with evidence that was returned, in [0, 1], times `gate`."""
    if not facts.subagents:
        return 0.0
    return gate(facts) * min(facts.useful_subagents, facts.finished_subagents, facts.subagents) / facts.subagents


def idle(facts: Facts) -> float:
    """Share of the sub-agents of which nothing was returned, in [0, 1]: tasks given for show."""
    if not facts.subagents:
        return 0.0
    return 1 - min(facts.useful_subagents, facts.subagents) / facts.subagents
