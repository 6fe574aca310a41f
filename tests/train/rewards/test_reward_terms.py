"""Each term by hand."""

from __future__ import annotations

import math

import pytest
from reward_support import PLAIN, like

from thresher.train.rewards import terms


def test_f_beta_by_hand() -> None:
    assert terms.f_beta(PLAIN, 4.0) == 1.0
    # P = 2/4, R = 1: 17 · 0.5 / (16 · 0.5 + 1)
    assert terms.f_beta(like(returned=("a", "b", "x", "y")), 4.0) == pytest.approx(17 * 0.5 / 9)
    # P = 1, R = 1/2: 5 · 0.5 / (4 + 0.5)
    assert terms.f_beta(like(returned=("a",)), 2.0) == pytest.approx(2.5 / 4.5)
    assert terms.f_beta(like(returned=("x",)), 2.0) == 0.0
    assert terms.f_beta(like(returned=()), 2.0) == 0.0
    assert terms.f_beta(like(gold=frozenset()), 2.0) == 0.0


def test_recall_terms() -> None:
    assert terms.trajectory_recall(like(shown=frozenset("ax"))) == 0.5
    assert terms.returned_recall(like(returned=("x", "b"))) == 0.5
    assert terms.trajectory_recall(like(gold=frozenset())) == terms.returned_recall(like(gold=frozenset())) == 0.0


def test_annealing_reaches_its_end_exactly() -> None:
    assert [terms.annealed(4, 2, p) for p in (-1, 0, 0.5, 1, 2)] == [4, 4, 3, 2, 2]
    assert terms.annealed(0.1, 0.0, 0.6, until=0.6) == 0.0
    assert terms.annealed(0.1, 0.0, 0.3, until=0.6) == pytest.approx(0.05)


def test_an_answer_counts_less_in_a_list_that_is_too_long() -> None:
    many = like(returned=tuple("abcdefghij"))
    assert terms.answer_found(PLAIN, allowed=5) == 1.0
    assert terms.answer_found(many, allowed=5) == 0.5
    assert terms.answer_found(like(answer_returned=False), allowed=5) == 0.0
    assert terms.allowance(PLAIN, least=5, per_gold=2) == 5
    assert terms.allowance(like(gold=frozenset("abcd")), least=5, per_gold=2) == 8
    assert terms.excess(many, allowed=5) == 0.5
    assert terms.excess(PLAIN, allowed=5) == terms.excess(like(returned=()), allowed=5) == 0.0


def test_answers_shown_and_in_words() -> None:
    assert terms.answer_shown(PLAIN) == 1.0
    assert terms.answer_shown(like(answer_shown=False)) == 0.0
    assert terms.answer_in_words(PLAIN) == 0.0
    assert terms.answer_in_words(like(answer_f1=0.25)) == 0.25


def test_abstention_is_paid_only_where_there_is_nothing_to_find() -> None:
    def earned(**changes: object) -> float:
        return terms.abstention(like(**changes), searches=3, unsaid=0.5)

    nothing: dict[str, object] = {
        "gold": frozenset(),
        "reachable": frozenset(),
        "has_answers": False,
        "answer_shown": False,
        "answer_returned": False,
    }
    assert earned(**nothing, sufficient=False) == 1.0
    assert earned(**nothing, sufficient=False, searches=1) == pytest.approx(1 / 3)
    assert earned(**nothing, sufficient=False, searches=0) == 0.0  # "the question is invalid", without a look
    assert earned(**nothing, sufficient=True) == 0.0
    assert earned(**nothing, sufficient=None, finished=False) == 0.5
    # gold that the collection does not have is not to be found either, unless the answer turned up elsewhere
    assert earned(reachable=frozenset(), answer_shown=False, answer_returned=False, sufficient=False) == 1.0
    assert earned(reachable=frozenset(), answer_shown=True, sufficient=False) == 0.0
    assert earned(sufficient=False) == 0.0
    # answers without gold: they may well be in there
    assert earned(**{**nothing, "has_answers": True}, sufficient=False) == 0.0


def test_prune_streaks() -> None:
    def penalty(streak: int) -> float:
        return terms.prune_streak(like(prune_streak=streak), free=3, each=0.1, cap=0.5)

    assert [penalty(n) for n in (0, 3, 4, 6, 8, 20)] == pytest.approx([0, 0, 0.1, 0.3, 0.5, 0.5])


def test_turns() -> None:
    def penalty(turns: int, steps: int = 0) -> float:
        return terms.turn_excess(like(turns=turns, critical_steps=steps), start=64, end=128, most=0.5)

    assert [penalty(n) for n in (0, 64, 96, 128, 500)] == [0, 0, 0.25, 0.5, 0.5]
    assert penalty(10, steps=96) == 0.25  # sub-agents that it waited for


def test_early_stop_by_hand() -> None:
    def cost(**changes: object) -> float:
        return terms.early_stop(like(**changes), searches=3, honest=0.5)

    half = {"shown": frozenset("ax"), "returned": ("a",)}
    assert cost() == 0.0
    assert cost(**half) == pytest.approx(0.5 * 0.5)  # half of the gold, with half of the budget left
    assert cost(**half, sufficient=False) == pytest.approx(0.5 * 0.5 * 0.5)
    assert cost(**half, sufficient=False, searches=0) == pytest.approx(0.5 * 0.5)  # a look costs less than a word
    assert cost(**half, turns_left=0.0) == cost(**half, tokens_left=0.0) == 0.0
    assert cost(**half, finished=False, sufficient=None, stop_reason="budget_turns") == 0.0
    assert cost(**half, finished=False, sufficient=None, stop_reason="no_new_evidence") == pytest.approx(0.5 * 0.5)
    assert terms.stalled(like(finished=False, stop_reason="no_new_evidence")) == 1.0
    assert terms.stalled(like()) == terms.stalled(like(finished=False, stop_reason="budget_turns")) == 0.0
    assert cost(**half, reachable=frozenset("a")) == 0.0  # what is left is not there to be found
    without = {"gold": frozenset(), "reachable": frozenset()}
    assert cost(**without) == 0.0
    assert cost(**without, answer_shown=False) == 0.5
    assert cost(**without, answer_shown=False, findable=False) == 0.0
    assert cost(**without, answer_shown=False, has_answers=False) == 0.0


def test_claims_and_doubts() -> None:
    assert terms.false_claim(PLAIN) == 0.0
    wrong = like(returned=("x",), answer_returned=False)
    assert terms.false_claim(wrong) == 1.0
    assert terms.false_claim(like(wrong, sufficient=False)) == 0.0
    assert terms.false_claim(like(wrong, answer_returned=True)) == 0.0
    assert terms.false_doubt(like(sufficient=False)) == 1.0
    assert terms.false_doubt(like(sufficient=False, returned=("a",))) == 0.0
    assert terms.false_doubt(PLAIN) == 0.0
    assert terms.false_doubt(like(sufficient=False, gold=frozenset(), has_answers=False, answer_returned=False)) == 0.0


def test_malformed_calls() -> None:
    def value(bad: int, calls: int) -> float:
        return terms.malformed(like(malformed=bad, calls=calls), tolerance=5)

    assert value(0, 0) == value(0, 8) == 0.0
    assert value(1, 10) == pytest.approx(0.5 * 0.1 + 0.5 * 0.2)
    assert value(5, 5) == value(9, 0) == 1.0
    assert value(1, 1) == pytest.approx(0.5 + 0.1)
    assert value(5, 1_000) > 0.5  # needless calls thin it out to half at most


def test_unseen_citations() -> None:
    assert [terms.unseen_citations(like(unseen_cited=n), each=0.05, cap=0.2) for n in (0, 1, 4, 9)] == pytest.approx(
        [0, 0.05, 0.2, 0.2]
    )


def test_length_cost_is_concave() -> None:
    def cost(tokens: int, q: float) -> float:
        return terms.length_cost(like(completion_tokens=tokens), scale=1_000, k=2.0, q=q)

    assert cost(0, 0.5) == 0.0
    assert cost(4_000, 0.5) == pytest.approx((math.sqrt(9) - 1) / (2 * 0.5))
    assert cost(4_000, 1.0) == pytest.approx(math.log(9) / 2)
    assert cost(4_000, 1 - 1e-7) == pytest.approx(cost(4_000, 1.0), rel=1e-5)
    assert cost(2_000, 0.5) - cost(1_000, 0.5) < cost(1_000, 0.5)
    assert cost(3_000, 0.0) == pytest.approx(3.0)  # q = 0: linear
