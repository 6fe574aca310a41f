"""What a judge adds to a reward: between nothing and its weight, and nothing at all to what breaks rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reward_support import PLAIN, facts, like

from thresher.train.rewards import PROFILES, Facts, RewardProfile, reward_of
from thresher.train.rewards.terms import abstention, borne_out, false_claim, judgeable

PROFILE = st.sampled_from(list(PROFILES.values()))
WEIGHT = st.sampled_from([0.0, 0.1, 0.5, 2.0])
SCORE = st.none() | st.floats(0, 1)
PROGRESS = st.floats(0, 1)
OPEN = like(
    gold=frozenset(), reachable=frozenset(), has_answers=False, answer_returned=False, answer_shown=False, open=True
)


def total(of: Facts, profile: RewardProfile, progress: float = 1.0) -> float:
    return reward_of(of, profile, progress=progress).total


@given(facts(), PROFILE, WEIGHT, SCORE, PROGRESS)
def test_a_judge_adds_between_nothing_and_its_weight(
    of: Facts, profile: RewardProfile, weight: float, score: float | None, progress: float
) -> None:
    profile = replace(profile, judge=weight)
    without = total(replace(of, judge=None), profile, progress)
    with_it = total(replace(of, judge=score), profile, progress)
    assert without <= with_it + 1e-12
    assert with_it <= without + weight + 1e-9


@given(facts(), facts(), PROFILE, WEIGHT, SCORE, SCORE, PROGRESS)
def test_a_judge_never_lifts_a_search_above_one_that_is_better_by_more_than_its_weight(
    one: Facts,
    other: Facts,
    profile: RewardProfile,
    weight: float,
    score: float | None,
    another: float | None,
    progress: float,
) -> None:
    profile = replace(profile, judge=weight)
    better, worse = sorted((one, other), key=lambda of: total(replace(of, judge=None), profile, progress), reverse=True)
    lead = total(replace(better, judge=None), profile, progress) - total(replace(worse, judge=None), profile, progress)
    assume(lead > weight + 1e-9)
    assert total(replace(better, judge=score), profile, progress) > total(
        replace(worse, judge=another), profile, progress
    )


@given(
    facts(), PROFILE, st.floats(0, 1), PROGRESS, st.sampled_from(["malformed", "unseen", "doubts", "empty", "fault"])
)
def test_what_breaks_rules_gains_nothing_by_a_judge(
    of: Facts, profile: RewardProfile, score: float, progress: float, how: str
) -> None:
    profile = replace(profile, judge=1.0)
    broken = {
        "malformed": replace(of, malformed=1, calls=of.calls + 1),
        "unseen": replace(of, unseen_cited=1),
        "doubts": replace(of, sufficient=False),
        "empty": replace(of, returned=()),
        "fault": replace(of, fault="the server failed"),
    }[how]
    assert not judgeable(broken)
    judged, not_judged = replace(broken, judge=score), replace(broken, judge=None)
    assert total(judged, profile, progress) == total(not_judged, profile, progress)


@given(facts(), st.floats(0, 1))
def test_the_shipped_profiles_pay_no_judge_but_one(of: Facts, score: float) -> None:
    for name, profile in PROFILES.items():
        if name != "judged":
            assert profile.judge == 0
            assert total(replace(of, judge=score), profile) == total(replace(of, judge=None), profile)
    assert 0 < PROFILES["judged"].judge < PROFILES["judged"].f_beta


@given(facts(), st.floats(0, 1), st.floats(0, 1))
def test_a_better_score_never_costs(of: Facts, one: float, other: float) -> None:
    low, high = sorted((one, other))
    profile = PROFILES["judged"]
    assert total(replace(of, judge=low), profile) <= total(replace(of, judge=high), profile) + 1e-12


def test_a_judges_word_counts_as_far_as_it_is_borne_out() -> None:
    assert borne_out(PLAIN) == 1.0
    assert borne_out(like(returned=("a", "x"))) == 0.5
    assert borne_out(like(returned=("x",))) == 0.0
    answers = like(gold=frozenset(), reachable=frozenset())
    assert (borne_out(answers), borne_out(like(answers, answer_returned=False))) == (1.0, 0.0)
    assert borne_out(like(answers, findable=False, answer_returned=False)) == 1.0
    assert borne_out(OPEN) == 1.0
    term = reward_of(like(returned=("a", "x"), judge=0.8), PROFILES["judged"]).terms["judge"]
    assert term == pytest.approx(0.4)


def test_no_score_is_worth_no_more_than_the_lowest() -> None:
    profile = PROFILES["judged"]
    assert total(like(judge=None), profile) == total(like(judge=0.0), profile) < total(like(judge=0.1), profile)


def test_nobody_earns_by_leaving_an_open_question_open() -> None:
    """Without known answers it looks like one that cannot be answered; its type says that it is none."""
    doubts = like(OPEN, sufficient=False)
    assert abstention(doubts, searches=3, unsaid=0.25) == 0.0
    assert abstention(replace(doubts, open=False), searches=3, unsaid=0.25) == 1.0
    assert (false_claim(OPEN), false_claim(replace(OPEN, open=False))) == (0.0, 1.0)
    profile = PROFILES["judged"]
    tried = total(like(OPEN, judge=0.1), profile)
    assert tried > total(like(OPEN, judge=None), profile) >= total(doubts, profile)
