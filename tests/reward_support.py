"""Facts for tests of rewards: by hand, and drawn at random so that they do not contradict themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from thresher.train.rewards import Facts

PLAIN = Facts(
    gold=frozenset({"a", "b"}),
    reachable=frozenset({"a", "b"}),
    returned=("a", "b"),
    shown=frozenset({"a", "b", "x", "y"}),
    has_answers=True,
    answer_returned=True,
    answer_shown=True,
    answer_f1=None,
    finished=True,
    sufficient=True,
    stop_reason="finished",
    turns=4,
    turns_left=0.5,
    tokens_left=0.5,
    calls=8,
    searches=5,
    malformed=0,
    prune_calls=0,
    prune_streak=0,
    pruned=0,
    pruned_gold=0,
    unseen_cited=0,
    reasoning_tokens=100,
    critical_steps=4,
    completion_tokens=400,
    answer_place=1,
)
"""An honest search that found all there is."""


def like(facts: Facts = PLAIN, **changes: Any) -> Facts:
    """Facts with some of them changed."""
    return replace(facts, **changes)


GOLD, NOISE = "abcd", "uvwxyz"


@st.composite
def facts(draw: st.DrawFn, **fixed: Any) -> Facts:
    """Facts of any search for any task; `fixed` ones are as given."""
    share = st.floats(0, 1)
    count = st.integers(0, 12)
    gold = draw(st.frozensets(st.sampled_from(GOLD)))
    reachable = draw(st.frozensets(st.sampled_from(sorted(gold)))) if gold else frozenset[str]()
    shown = draw(st.frozensets(st.sampled_from(sorted(reachable) + list(NOISE))))
    returned = tuple(draw(st.permutations(sorted(shown))))[: draw(count)]
    has_answers = draw(st.booleans())
    answer_shown = has_answers and bool(shown) and draw(st.booleans())
    answer_returned = answer_shown and bool(returned) and draw(st.booleans())
    finished = draw(st.booleans())
    malformed, good = draw(count), draw(count)
    subagents = draw(count)
    ended = draw(st.integers(0, subagents))
    made = Facts(
        gold=gold,
        reachable=reachable,
        returned=returned,
        shown=shown,
        has_answers=has_answers,
        answer_returned=answer_returned,
        answer_shown=answer_shown,
        answer_f1=draw(st.none() | share),
        finished=finished,
        sufficient=draw(st.booleans()) if finished else None,
        stop_reason="finished" if finished else draw(st.sampled_from(["budget_turns", "no_new_evidence"])),
        turns=draw(st.integers(0, 200)),
        turns_left=draw(share),
        tokens_left=draw(share),
        calls=malformed + good,
        searches=draw(st.integers(0, good)),
        malformed=malformed,
        prune_calls=draw(count),
        prune_streak=draw(count),
        pruned=draw(count),
        pruned_gold=0,
        unseen_cited=draw(count),
        reasoning_tokens=draw(count),
        subagents=subagents,
        finished_subagents=ended,
        useful_subagents=draw(st.integers(0, ended)),
        parallel=draw(st.integers(0, subagents)),
        critical_steps=draw(st.integers(0, 200)),
        completion_tokens=draw(st.integers(0, 50_000)),
        findable=draw(st.booleans()),
        judge=draw(st.none() | share),
    )
    return replace(made, **fixed)
