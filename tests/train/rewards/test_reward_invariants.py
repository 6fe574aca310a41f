"""What holds for every search under every shipped profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reward_support import GOLD, NOISE, PLAIN, facts, like

from thresher.train.rewards import PROFILES, Facts, RewardProfile, reward_of
from thresher.train.rewards.reward import CONDUCT, EARNED, RULES
from thresher.train.rewards.terms import f_beta

PROFILE = st.sampled_from(list(PROFILES.values()))
PROGRESS = st.floats(0, 1)
every_profile = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


def total(of: Facts, profile: RewardProfile, progress: float = 1.0) -> float:
    return reward_of(of, profile, progress=progress).total


@given(facts(), PROFILE, PROGRESS)
def test_parts_are_all_there_and_add_up(of: Facts, profile: RewardProfile, progress: float) -> None:
    reward = reward_of(of, profile, progress=progress)
    assert set(reward.parts) == set(reward.terms) == {*EARNED, *CONDUCT, *RULES}
    assert all(reward.parts[name] >= 0 for name in EARNED)
    assert all(reward.parts[name] <= 0 for name in (*CONDUCT, *RULES))
    before = sum(reward.parts.values())
    if reward.floored:
        assert reward.total > before
    else:
        assert reward.total == pytest.approx(before)


@given(facts(), PROFILE, PROGRESS)
def test_totals_are_bounded(of: Facts, profile: RewardProfile, progress: float) -> None:
    reward = reward_of(of, profile, progress=progress)
    earned = sum(reward.parts[name] for name in EARNED)
    assert -profile.malformed - profile.unseen_cap - 1e-9 <= reward.total <= earned + 1e-9
    broken = sum(reward.parts[name] for name in RULES)
    assert reward.total >= min(profile.floor, earned) + broken - 1e-9


@given(facts(), PROFILE, PROGRESS, st.sampled_from(GOLD), st.booleans())
def test_one_more_gold_document_never_costs(
    of: Facts, profile: RewardProfile, progress: float, more: str, shown: bool
) -> None:
    """In place of one that is not gold; as long as the word on the evidence is not made wrong by it."""
    everything = frozenset(GOLD)
    of = replace(of, gold=everything, reachable=everything, sufficient=of.sufficient or None)
    kept = tuple(document for document in of.returned if document != more)
    less = replace(of, returned=(*kept, "noise"), shown=(of.shown - {more}) | {"noise"} | ({more} if shown else set()))
    better = replace(of, returned=(*kept, more), shown=less.shown | {more})
    assert total(better, profile, progress) >= total(less, profile, progress) - 1e-9


@given(facts(has_answers=True, findable=True, sufficient=None, finished=False), PROFILE, PROGRESS)
def test_finding_the_answer_never_costs(of: Facts, profile: RewardProfile, progress: float) -> None:
    assume(of.reachable or not of.gold)
    without = replace(of, answer_returned=False, answer_shown=False)
    found = replace(of, answer_returned=True, answer_shown=True)
    assert total(found, profile, progress) >= total(without, profile, progress) - 1e-9


WORSE: dict[str, Any] = {
    "malformed": lambda f: replace(f, malformed=f.malformed + 1, calls=f.calls + 1),
    "no call": lambda f: replace(f, malformed=f.malformed + 1),
    "unseen": lambda f: replace(f, unseen_cited=f.unseen_cited + 1),
    "prune streak": lambda f: replace(f, prune_streak=f.prune_streak + 1, prune_calls=f.prune_calls + 1),
    "turns": lambda f: replace(f, turns=f.turns + 10, critical_steps=f.critical_steps + 10),
    "words": lambda f: replace(f, completion_tokens=f.completion_tokens + 500),
    "idle agent": lambda f: replace(f, subagents=f.subagents + 1),
    "earlier": lambda f: replace(f, turns_left=min(1.0, f.turns_left + 0.2), tokens_left=min(1.0, f.tokens_left + 0.2)),
    "noise": lambda f: replace(f, returned=(*f.returned, "noise-1"), shown=f.shown | {"noise-1"}),
}


@pytest.mark.parametrize("how", WORSE.values(), ids=WORSE)
@given(of=facts(), profile=PROFILE, progress=PROGRESS, length=st.sampled_from([0.0, 0.1]))
def test_no_penalty_ever_raises_a_total(
    of: Facts, profile: RewardProfile, progress: float, length: float, how: Any
) -> None:
    profile = replace(profile, length=length)
    assert total(how(of), profile, progress) <= total(of, profile, progress) + 1e-9


@given(facts(), PROFILE, PROGRESS, st.integers(1, 20), st.booleans())
def test_malformed_calls_never_pay(of: Facts, profile: RewardProfile, progress: float, bad: int, called: bool) -> None:
    """The same search with malformed calls in it earns strictly less, floored or not: there is no free garbage."""
    clean = replace(of, malformed=0, calls=of.calls - of.malformed)
    dirty = replace(clean, malformed=bad, calls=clean.calls + bad * called)
    assert total(dirty, profile, progress) < total(clean, profile, progress)
    one_less = replace(clean, malformed=bad - 1, calls=clean.calls + (bad - 1) * called)
    assert total(dirty, profile, progress) <= total(one_less, profile, progress) + 1e-12


ALL_MALFORMED = like(
    returned=(),
    shown=frozenset(),
    answer_returned=False,
    answer_shown=False,
    finished=False,
    sufficient=None,
    stop_reason="no_new_evidence",
    searches=0,
    answer_place=None,
)


@given(
    facts(malformed=0),
    facts(),
    PROFILE,
    PROGRESS,
    st.integers(1, 20),
    st.booleans(),
)
def test_only_malformed_calls_earn_less_than_the_poorest_try(
    poorest: Facts, task: Facts, profile: RewardProfile, progress: float, bad: int, called: bool
) -> None:
    """Whatever the task: even a search that invents, cites the unseen, stops at once and returns nothing of use."""
    nothing = replace(
        ALL_MALFORMED,
        gold=task.gold,
        reachable=task.reachable,
        has_answers=task.has_answers,
        findable=task.findable,
        malformed=bad,
        calls=bad * called,
    )
    assert total(nothing, profile, progress) < total(poorest, profile, progress)
    assert total(nothing, profile, progress) < 0


@given(facts(), PROFILE)
def test_a_floored_reward_keeps_the_order_of_malformed_calls(of: Facts, profile: RewardProfile) -> None:
    failed = replace(of, gold=frozenset("a"), reachable=frozenset("a"), shown=frozenset("x"), returned=("x",))
    failed = replace(failed, has_answers=False, answer_shown=False, answer_returned=False, answer_f1=None)
    ranking = [total(replace(failed, malformed=bad, calls=10), profile) for bad in (0, 1, 3, 5)]
    assert ranking == sorted(ranking, reverse=True)
    assert len(set(ranking)) == 4


@every_profile
def test_words_on_evidence_that_is_missing(profile: RewardProfile) -> None:
    """Half is found and budget is left: to go on is best, an honest word costs less than a false one."""
    half = like(returned=("a",), shown=frozenset("ax"), answer_returned=False, answer_shown=False)
    if not profile.f_beta:
        half = like(half, gold=frozenset(), reachable=frozenset())
        earned = like(half, answer_f1=0.5)  # something to lose, or all would stand on the floor
    else:
        earned = half
    honest = total(like(earned, sufficient=False), profile)
    refused = total(like(earned, sufficient=False, searches=0), profile)
    false = total(earned, profile)
    limited = total(like(earned, finished=False, sufficient=None, stop_reason="budget_turns"), profile)
    stalled = total(like(earned, finished=False, sufficient=None, stop_reason="no_new_evidence"), profile)
    whole = total(PLAIN, profile)
    assert whole > limited > honest > refused >= false
    assert limited - honest <= profile.early
    assert honest > stalled


@every_profile
def test_an_honest_word_where_nothing_is_left_costs_nothing(profile: RewardProfile) -> None:
    nothing_left = like(
        reachable=frozenset("a"), shown=frozenset("ax"), returned=("a",), answer_returned=False, answer_shown=False
    )
    unsaid = like(nothing_left, finished=False, sufficient=None, stop_reason="budget_turns")
    assert total(like(nothing_left, sufficient=False), profile) == total(unsaid, profile)


@every_profile
def test_questions_without_an_answer(profile: RewardProfile) -> None:
    nothing = like(
        gold=frozenset(),
        reachable=frozenset(),
        returned=(),
        has_answers=False,
        answer_returned=False,
        answer_shown=False,
    )
    honest = total(like(nothing, sufficient=False), profile)
    quick = total(like(nothing, sufficient=False, searches=1), profile)
    unsaid = total(like(nothing, finished=False, sufficient=None, stop_reason="no_new_evidence"), profile)
    invented = total(like(nothing, returned=("x", "y"), sufficient=True), profile)
    invalid = total(like(nothing, sufficient=False, searches=0, calls=1), profile)
    assert honest > max(unsaid, quick) >= min(unsaid, quick) > 0 == invented == invalid


def everything(of: Facts, shown: int) -> Facts:
    documents = [*sorted(of.gold), *(f"{NOISE[0]}{n}" for n in range(shown))][:shown]
    return replace(of, returned=tuple(documents), shown=of.shown | set(documents))


@every_profile
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gold", [1, 2, 3, 4])
@pytest.mark.parametrize("shown", [10, 20, 60, 100])
def test_returning_everything_ranks_below_choosing(
    profile: RewardProfile, progress: float, gold: int, shown: int
) -> None:
    """F_β at β = 4 alone would rank a list of twenty with all four gold documents above an honest one of three.

    So what is beyond the allowed length costs, and the answer counts less in it. Up to that length a longer list is
    what was asked for, and only its precision tells.
    """
    ids = frozenset(GOLD[:gold])
    task = like(gold=ids, reachable=ids, shown=ids | {"x", "y"}, returned=tuple(sorted(ids)))
    dumped = total(everything(task, shown), profile, progress)
    chosen = total(task, profile, progress)
    noisy = total(like(task, returned=(*task.returned, *NOISE[:gold])), profile, progress)
    partial = total(like(task, returned=task.returned[: max(1, gold - 1)]), profile, progress)
    if shown > profile.allowed_documents:
        assert chosen >= noisy > dumped
        assert partial > dumped
    elif profile.f_beta:
        assert chosen > dumped


def test_why_f_beta_alone_is_not_enough() -> None:
    ids = frozenset(GOLD)
    dump = everything(like(gold=ids, reachable=ids), 20)
    assert f_beta(dump, 4.0) > f_beta(like(gold=ids, returned=("a", "b", "c")), 4.0)


@every_profile
def test_a_word_that_is_always_said_does_not_pay(profile: RewardProfile) -> None:
    """Were one question in five unanswerable and the other four found, "not sufficient" to all must not win."""
    nothing = like(gold=frozenset(), reachable=frozenset(), returned=(), has_answers=False, answer_returned=False)
    nothing = like(nothing, answer_shown=False)
    doubts = 4 * total(like(sufficient=False), profile) + total(like(nothing, sufficient=False), profile)
    says = 4 * total(PLAIN, profile) + total(nothing, profile)
    knows = 4 * total(PLAIN, profile) + total(like(nothing, sufficient=False), profile)
    assert knows > says > doubts


def test_dumping_all_also_loses_against_a_choice_that_missed_the_answer() -> None:
    profile = PROFILES["context1"]
    poor = like(returned=("a", "x"), answer_returned=False)
    for progress in (0.0, 1.0):
        assert total(poor, profile, progress) > total(everything(PLAIN, 40), profile, progress)


def test_recall_counts_more_early_in_training() -> None:
    profile = PROFILES["context1"]
    wide, narrow = like(returned=("a", "b", "x", "y", "z")), like(returned=("a",))
    gaps = [
        reward_of(wide, profile, progress=p).terms["f_beta"] - reward_of(narrow, profile, progress=p).terms["f_beta"]
        for p in (0.0, 0.5, 1.0)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > 0
