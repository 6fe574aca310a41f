from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.metrics.answers import answer_in_text, exact_match, normalise, token_f1
from thresher.train.metrics.retrieval import (
    all_gold_at,
    distinct,
    mean,
    paired_bootstrap,
    percentile,
    precision,
    prune_accuracy,
    recall,
    recall_at,
)

words = st.lists(st.sampled_from(["tide", "harbour", "the", "a", "Petrel", "1979", "No."]), max_size=8).map(" ".join)
ids = st.lists(st.sampled_from("abcdefgh"), max_size=12)
gold_ids = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Quick, Brown fox!", "quick brown fox"),
        ("A.N. Other", "other"),  # as in SQuAD: the dots go first, and "an" is then an article
        ("Theatre of an ant", "theatre of ant"),
        ("野口 遥", "野口 遥"),
        ("", ""),
        ("the", ""),
        ("1:4,800", "14800"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert " ".join(once.split()) == once
    assert exact_match(text, [text])


def test_exact_match_takes_any_alias() -> None:
    assert exact_match("the Merrow", ["MV Merrow", "Merrow"])
    assert not exact_match("Merrow II", ["MV Merrow", "Merrow"])
    assert not exact_match("Merrow", [])


def test_token_f1_by_hand() -> None:
    # predicted {carrick, thole, works}, wanted {carrick, thole}: 2 common, P = 2/3, R = 1 -> 0.8
    assert token_f1("Carrick & Thole works", ["Carrick & Thole"]) == pytest.approx(0.8)
    assert token_f1("Carrick", ["Somebody else", "Carrick"]) == 1.0
    assert token_f1("tide tide", ["tide"]) == pytest.approx(2 / 3)  # a bag: the second "tide" is spare
    assert token_f1("", ["tide"]) == 0.0
    assert token_f1("the", ["a"]) == 1.0  # nothing is left of either, as in SQuAD's own script
    assert token_f1("tide", []) == 0.0


@given(words, words)
def test_f1_is_symmetric_and_bounded(left: str, right: str) -> None:
    score = token_f1(left, [right])
    assert score == pytest.approx(token_f1(right, [left]))
    assert 0.0 <= score <= 1.0
    assert (score == 1.0) >= exact_match(left, [right])


def test_answer_in_text_wants_whole_words() -> None:
    assert answer_in_text(["Pelorus Day Cruises"], ["She was sold to PELORUS Day-Cruises"]) is False
    assert answer_in_text(["Pelorus Day Cruises"], ["nothing", "sold to the PELORUS Day Cruises."])
    assert not answer_in_text(["art"], ["a party"])
    assert answer_in_text(["1:4,800"], ["at a scale of 1:4,800."])
    assert not answer_in_text(["The", "-"], ["the - end"])
    assert not answer_in_text([], ["text"])
    assert not answer_in_text(["text"], [])


def test_recall_by_hand() -> None:
    ranked = ["a", "x", "a", "b", "y", "c"]
    assert distinct(ranked) == ["a", "x", "b", "y", "c"]
    assert recall_at(ranked, {"a", "b", "c", "d"}, 3) == 0.5  # a, x, b: the second passage of `a` takes no place
    assert recall_at(ranked, {"a", "b", "c", "d"}, 5) == 0.75
    assert recall_at([], {"a"}, 5) == 0.0
    assert not all_gold_at(ranked, {"a", "c"}, 4)
    assert all_gold_at(ranked, {"a", "c"}, 5)
    assert precision(ranked, {"a", "b"}) == pytest.approx(2 / 5)
    assert precision([], {"a"}) == 0.0


def test_a_query_without_gold_has_no_recall() -> None:
    with pytest.raises(ValueError, match="without gold"):
        recall(["a"], [])


@given(ids, gold_ids, st.integers(0, 12))
def test_recall_grows_with_k_and_all_gold_is_recall_one(ranked: list[str], gold: set[str], k: int) -> None:
    value = recall_at(ranked, gold, k)
    assert 0.0 <= value <= recall_at(ranked, gold, k + 1) <= recall(ranked, gold) <= 1.0
    assert all_gold_at(ranked, gold, k) == (value == 1.0)
    assert 0.0 <= precision(ranked, gold) <= 1.0


def test_prune_accuracy_counts_chunks() -> None:
    assert prune_accuracy([("x", ("a",)), ("a", ("a",)), ("y", ("b",)), ("z", ("b",))]) == 0.75
    assert prune_accuracy([]) is None


def test_mean_and_percentile() -> None:
    assert mean([1.0, 2.0, 6.0]) == 3.0
    assert mean([True, False]) == 0.5
    assert mean([]) is None
    assert percentile([4.0, 1.0, 3.0, 2.0, 5.0], 50) == 3.0
    assert percentile([0.0, 10.0], 95) == pytest.approx(9.5)
    assert percentile([], 50) is None


def test_bootstrap_of_a_constant_difference_has_no_width() -> None:
    interval = paired_bootstrap([0.75, 0.5, 1.0], [0.5, 0.25, 0.75], samples=200)
    assert interval is not None
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.25, 0.25, 0.25))


def test_bootstrap_matches_the_normal_interval() -> None:
    # 100 differences, half 1 and half 0: mean 0.5, standard error 0.05, so about 0.4 to 0.6
    interval = paired_bootstrap([1.0, 0.0] * 50, [0.0] * 100)
    assert interval is not None
    assert interval.mean == 0.5
    assert interval.low == pytest.approx(0.402, abs=0.01)
    assert interval.high == pytest.approx(0.598, abs=0.01)
    assert interval == paired_bootstrap([1.0, 0.0] * 50, [0.0] * 100)


def test_bootstrap_edges() -> None:
    assert paired_bootstrap([], []) is None
    with pytest.raises(ValueError, match="2 and 1"):
        paired_bootstrap([1.0, 0.0], [1.0])
