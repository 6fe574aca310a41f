"""How signals are read, and that silence never pays."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from production_support import served, signal

from thresher.train.production.reading import Outcome, harm, read, tally, used
from thresher.train.production.records import Signal

OPENED, CITED = signal("opened", "c1"), signal("cited", "c1")
AGAIN, LEFT = signal("reformulated", "srch_2"), signal("abandoned")
UP, DOWN = signal("thumbs", 1.0), signal("thumbs", -1.0)


def value(*signals: Signal, **given: Any) -> float | None:
    return read(served(**given), signals).value


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ((), None),
        ((UP,), 1.0),
        ((signal("thumbs", 0.5), DOWN), -0.25),
        ((OPENED,), 0.25),
        ((OPENED, signal("opened", "c2"), OPENED), 0.25),
        ((CITED,), 0.75),
        ((CITED, signal("cited", "c2")), 0.75),
        ((AGAIN,), -0.5),
        ((LEFT,), -0.5),
        ((OPENED, AGAIN), -0.5),
        ((OPENED, LEFT), -0.5),
        ((OPENED, CITED), 0.75),
        ((CITED, AGAIN), 0.125),
        ((signal("evidence", {"c1": True}),), 1.0),
        ((signal("evidence", {"c1": True, "c2": False}),), 0.0),
        ((signal("evidence", {"c1": False}), signal("evidence", {"c1": True})), 1.0),
        ((signal("evidence", {"c9": True}),), None),
        ((signal("opened", "c9"),), None),
        ((DOWN, CITED, OPENED), -1.0),
        ((UP, AGAIN), 1.0),
        ((UP, signal("evidence", {"c1": False})), 0.0),
        ((signal("thumbs", 1.0, "srch_9"),), None),
        ((signal("thumbs", 1.0, tenant="acme"),), None),
    ],
)
def test_each_kind_and_what_goes_before_what(signals: tuple[Signal, ...], expected: float | None) -> None:
    assert value(*signals) == expected


def test_leaving_with_an_answer_says_nothing() -> None:
    assert value(LEFT, answer="Edda Brask") is None
    assert value(LEFT, OPENED, answer="Edda Brask") == 0.25


@pytest.mark.parametrize(
    ("answer", "said", "expected"),
    [
        ("Edda Brask", "edda brask", 1.0),
        ("Holm", "Edda Brask", -0.5),
        ("Holm", "Corran", -1.0),
        (None, "Edda Brask", 0.5),
        (None, "Corran", -0.5),
        (None, "yes", None),
        (None, "  ", None),
    ],
)
def test_what_the_answer_should_have_been(answer: str | None, said: str, expected: float | None) -> None:
    assert value(signal("answer", said), answer=answer) == expected


def test_without_passages_an_answer_cannot_be_looked_for() -> None:
    outcome = read(served(trajectory=None), [signal("answer", "Edda Brask")])
    assert (outcome.value, outcome.known, outcome.answers) == (None, False, ("Edda Brask",))


def test_gold_is_what_was_of_use() -> None:
    outcome = read(served(), [signal("cited", "c2"), signal("evidence", {"c1": True}), OPENED])
    assert outcome.gold == ("brask.md", "ferry.md")
    assert read(served(), [CITED, signal("evidence", {"c1": False})]).gold == ()
    assert read(served(), [OPENED]).gold == ()


def test_an_outcome_tells_each_kind_of_signal() -> None:
    outcome = read(served(), [UP, AGAIN, OPENED])
    assert outcome.by == {"thumbs": 1.0, "opened": 0.25, "reformulated": -0.5}
    assert outcome.known


BARE = served(trajectory=None)

SIGNALS = st.lists(
    st.one_of(
        st.floats(-1, 1).map(lambda rating: signal("thumbs", rating)),
        st.sampled_from(
            [OPENED, CITED, AGAIN, LEFT, signal("answer", "Edda Brask"), signal("evidence", {"c2": False})]
        ),
    ),
    max_size=6,
)


@given(SIGNALS, st.sampled_from([None, "Edda Brask", "Holm"]))
def test_values_are_in_range_and_silence_is_none(signals: list[Signal], answer: str | None) -> None:
    outcome = read(served(answer=answer), signals)
    assert outcome.known == (outcome.value is not None) == bool(outcome.by)
    if outcome.value is not None:
        assert -1 <= outcome.value <= 1
    assert 0 <= used(outcome) <= 1
    if not signals:
        assert outcome == Outcome(None)


@given(st.lists(SIGNALS, min_size=1, max_size=8), st.data())
def test_turning_any_search_silent_never_makes_a_policy_better(
    searches: list[list[Signal]], data: st.DataObject
) -> None:
    outcomes = [read(BARE, signals) for signals in searches]
    hushed = data.draw(st.sets(st.integers(0, len(outcomes) - 1)))
    quieter = [Outcome(None) if place in hushed else outcome for place, outcome in enumerate(outcomes)]
    assert tally(quieter).used <= tally(outcomes).used
    assert tally(quieter).searches == tally(outcomes).searches


@given(st.lists(SIGNALS, min_size=1, max_size=8))
def test_a_silent_search_is_worth_less_than_what_was_used(searches: list[list[Signal]]) -> None:
    outcomes = [read(BARE, signals) for signals in searches]
    good = [used(outcome) for outcome in outcomes if used(outcome) > 0]
    silent = used(Outcome(None))
    assert all(silent < one for one in good)
    assert tally([*outcomes, Outcome(None)]).used <= tally(outcomes).used


def test_no_searches_are_no_figure() -> None:
    with pytest.raises(ValueError, match="no searches"):
        tally([])


def users(
    dice: random.Random, *, good: float, answers: float, vocal: float, count: int, hush: float = 0.0
) -> list[Outcome]:
    """Outcomes of a policy with simulated users.

    It answers a share `answers` of its searches, of which a share `good` is good; users of the rest see nothing of
    use. A share `vocal` of users says what they think. `hush` is the share of bad searches that the policy makes its
    users keep quiet about.
    """
    outcomes = []
    for _ in range(count):
        answered = dice.random() < answers
        fine = answered and dice.random() < good
        said: list[Signal] = []
        if answered and dice.random() < vocal and not (not fine and dice.random() < hush):
            said = [UP if fine else DOWN]
        elif fine and dice.random() < 0.5:
            said = [CITED]
        outcomes.append(read(BARE, said))
    return outcomes


def test_a_policy_that_answers_less_and_hears_less_does_not_win() -> None:
    """It answers only what is easy, and so gets better words of those who speak; it is of use to fewer."""
    dice = random.Random(1)
    honest = tally(users(dice, good=0.6, answers=1.0, vocal=0.3, count=4_000))
    shy = tally(users(dice, good=0.9, answers=0.4, vocal=0.3, count=4_000))
    assert shy.mean_known is not None
    assert honest.mean_known is not None
    assert shy.mean_known > honest.mean_known  # what a mean of the known would fall for
    assert shy.used < honest.used


def test_a_policy_that_keeps_the_disappointed_quiet_does_not_win() -> None:
    ties = [
        tally(users(random.Random(seed), good=0.6, answers=1.0, vocal=0.3, count=2_000, hush=hush))
        for seed in range(5)
        for hush in (0.0, 1.0)
    ]
    plain, hushing = ties[::2], ties[1::2]
    assert all(two.mean_known > one.mean_known for one, two in zip(plain, hushing, strict=True))  # type: ignore[operator]
    gain = sum(two.used - one.used for one, two in zip(plain, hushing, strict=True)) / len(plain)
    assert abs(gain) < 0.01
    assert all(harm_two.harm < harm_one.harm for harm_one, harm_two in zip(plain, hushing, strict=True))


def test_harm_is_only_what_was_said_against_it() -> None:
    assert harm(read(served(), [DOWN])) == 1.0
    assert harm(read(served(), [AGAIN])) == 0.5
    assert harm(read(served(), [UP])) == harm(Outcome(None)) == 0.0
