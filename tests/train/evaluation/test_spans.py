from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.metrics.spans import Place, merged, span_scores

places = st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 12)).map(
    lambda p: (p[0], p[1], p[1] + p[2])
)
passages = st.lists(places, max_size=8)
excerpts = st.lists(places.filter(lambda place: place[1] < place[2]), min_size=1, max_size=5)


def characters(spans: list[Place]) -> set[tuple[str, int]]:
    return {(document, at) for document, start, end in spans for at in range(start, end)}


def test_by_hand() -> None:
    # 20 characters wanted, 30 returned (10..30 and 25..40), 15 of them wanted
    scores = span_scores([("a", 10, 30), ("a", 25, 40)], [("a", 0, 15), ("b", 0, 0), ("a", 30, 40), ("a", 10, 15)])
    assert scores.recall == pytest.approx(15 / 25)
    assert scores.precision == pytest.approx(15 / 30)
    assert scores.iou == pytest.approx(15 / 40)


def test_the_same_offsets_of_another_document_are_other_characters() -> None:
    assert span_scores([("b", 0, 10)], [("a", 0, 10)]).recall == 0.0


def test_nothing_returned_finds_nothing() -> None:
    scores = span_scores([], [("a", 0, 10)])
    assert (scores.recall, scores.precision, scores.iou) == (0.0, 0.0, 0.0)


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="without excerpts"):
        span_scores([("a", 0, 1)], [("a", 5, 5)])
    with pytest.raises(ValueError, match="no span"):
        span_scores([("a", 3, 1)], [("a", 0, 1)])


@given(passages, excerpts)
def test_scores_are_those_of_sets_of_characters(returned: list[Place], wanted: list[Place]) -> None:
    scores = span_scores(returned, wanted)
    have, want = characters(returned), characters(wanted)
    assert scores.recall == pytest.approx(len(have & want) / len(want))
    assert scores.precision == pytest.approx(len(have & want) / len(have) if have else 0.0)
    assert scores.iou == pytest.approx(len(have & want) / len(have | want))
    assert 0.0 <= scores.iou <= min(scores.recall, scores.precision if have else 1.0) <= 1.0


@given(passages, excerpts, st.randoms())
def test_order_and_repetition_do_not_count(returned: list[Place], wanted: list[Place], random: object) -> None:
    shuffled = [*returned, *returned]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert span_scores(shuffled, reversed(wanted)) == span_scores(returned, wanted)


@given(passages)
def test_merged_ranges_hold_the_same_characters_and_stand_apart(spans: list[Place]) -> None:
    ranges = merged(spans)
    assert characters([(document, *own) for document, every in ranges.items() for own in every]) == characters(spans)
    for every in ranges.values():
        assert all(end < start for (_, end), (start, _) in pairwise(every))


@given(passages, excerpts, places)
def test_one_more_passage_never_lowers_recall(returned: list[Place], wanted: list[Place], more: Place) -> None:
    assert span_scores([*returned, more], wanted).recall >= span_scores(returned, wanted).recall
