from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.evaluation.observing import Observed
from thresher.train.evaluation.summary import overall, summarise
from thresher.train.tasks.task import Task

GOLD, OPEN = Task("gold", "?", ("x",), ("a",)), Task("open", "?")
verdicts = st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])), max_size=20)


def asked(*said: tuple[bool, bool | None]) -> list[tuple[Task, Observed]]:
    return [(GOLD if gold else OPEN, Observed(sufficient=sufficient)) for gold, sufficient in said]


def test_abstention_by_hand() -> None:
    summary = summarise(asked((False, False), (False, False), (False, True), (True, False), (True, True), (True, None)))
    assert summary.abstention_precision == pytest.approx(2 / 3)
    assert summary.abstention_recall == pytest.approx(2 / 3)
    assert summary.abstention_f1 == pytest.approx(2 / 3)
    assert (summary.abstained_without_gold, summary.abstained_with_gold) == (2, 1)


def test_abstention_is_not_scored_where_there_is_nothing_to_score() -> None:
    assert summarise(asked((True, False))).abstention_recall is None, "no question is without gold"
    assert summarise(asked((False, None), (True, None))).abstention_f1 is None, "it never said a word"
    never = summarise(asked((False, True), (True, True)))
    assert (never.abstention_precision, never.abstention_recall, never.abstention_f1) == (None, 0.0, 0.0)


@given(verdicts)
def test_abstention_is_what_a_count_says(said: list[tuple[bool, bool | None]]) -> None:
    summary = summarise(asked(*said))
    scores = (summary.abstention_precision, summary.abstention_recall, summary.abstention_f1)
    assert all(value is None or 0.0 <= value <= 1.0 for value in scores)
    precision, recall, f1 = scores
    if precision and recall:
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert summary.abstained_without_gold <= sum(not gold for gold, _ in said)


def test_by_hop_and_by_ratio() -> None:
    results = [Observed(hops_found=(True, False), seconds=2.0), Observed(hops_found=(True,), seconds=9.0), Observed()]
    baseline = [Observed(seconds=1.0), Observed(seconds=3.0), Observed(seconds=0.0)]
    summary = summarise([(GOLD, result) for result in results], baseline)
    assert summary.hop_recall == {"1": 1.0, "2": 0.0}
    assert summary.chain_10 == {"1": 1.0, "2": 0.0}
    assert summary.seconds_ratio == 2.5, "the median of 2 and 3; of a question without a time there is no ratio"
    assert summarise([(GOLD, Observed())]).hop_recall is None


def test_money_and_cached_tokens_are_null_where_nobody_counted() -> None:
    nothing = summarise([(GOLD, Observed()), (GOLD, Observed())])
    assert (nothing.cost, nothing.cached_tokens, nothing.span_recall) == (None, None, None)
    some = summarise([(GOLD, Observed(cost=0.5, cached_tokens=10)), (GOLD, Observed(cost=0.0, cached_tokens=None))])
    assert (some.cost, some.cached_tokens) == (0.25, 10.0)


def test_over_sets_means_are_of_sets_and_counts_are_added() -> None:
    one = summarise([(GOLD, Observed(recall_10=1.0, stop_reason="finished", hops_found=(True,)))] * 3)
    two = summarise([(GOLD, Observed(recall_10=0.0, error="x", hops_found=(False, True)))])
    none = summarise([(OPEN, Observed(stop_reason="finished"))])
    both = overall([one, two, none])
    assert both.recall_10 == 0.5
    assert both.failed == 1
    assert both.stop_reasons == {"error": 1, "finished": 4}
    assert both.hop_recall == {"1": 0.5, "2": 1.0}
    assert both.span_recall is None
    assert overall([one]) == one


@given(
    st.builds(
        Observed,
        returned=st.lists(st.text(max_size=3), max_size=3).map(tuple),
        recall_10=st.none() | st.floats(0, 1),
        hops_found=st.none() | st.lists(st.sampled_from([True, False, None]), max_size=3).map(tuple),
        sufficient=st.sampled_from([True, False, None]),
        seconds=st.floats(0, 1e6),
        web_pages=st.just(2),
        leaks=st.lists(st.just({"url": "u", "reason": "question", "matched": "m"}), max_size=2).map(tuple),
        clean=st.none() | st.builds(Observed, web_pages=st.just(1)),
    )
)
def test_what_was_observed_is_read_back_as_it_was(observed: Observed) -> None:
    assert Observed.from_dict(observed.as_dict()) == observed
