from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.train.evaluation.differences import differences, resampled
from thresher.train.evaluation.observing import Observed
from thresher.train.metrics.retrieval import bootstrap_means, ndcg_at, paired_bootstrap

shares = st.floats(0, 1, allow_nan=False)
pairs = st.lists(st.tuples(st.none() | shares, st.none() | shares), min_size=1, max_size=12)


def observed(values: list[float | None]) -> list[Observed]:
    return [Observed(recall_10=value, prompt_tokens=10, seconds=1.0) for value in values]


def test_a_set_by_itself_is_the_paired_bootstrap_of_its_questions() -> None:
    ours, theirs = [1.0, 0.0, 0.5, 1.0] * 25, [0.5, 0.0, 0.0, 1.0] * 25
    [found] = differences([resampled({"s": observed(list(ours))}, observed(list(theirs)))]).values()
    wanted = paired_bootstrap(ours, theirs)
    assert wanted is not None
    assert found["recall_10"].n == 100
    assert found["recall_10"].mean == pytest.approx(wanted.mean)
    assert found["recall_10"].low == pytest.approx(wanted.low, abs=0.01)
    assert found["recall_10"].high == pytest.approx(wanted.high, abs=0.01)
    assert found["seconds"].mean == found["seconds"].low == found["seconds"].high == 0.0


def test_only_questions_that_both_have_are_compared() -> None:
    ours, theirs = observed([1.0, None, 0.5]), observed([0.0, 1.0, None])
    [found] = differences([resampled({"s": ours}, theirs, samples=50)]).values()
    assert (found["recall_10"].mean, found["recall_10"].n) == (1.0, 1)
    assert "span_recall" not in found
    with pytest.raises(ValueError, match="must pair"):
        resampled({"s": ours}, theirs[:2])


def test_sets_count_once_each_however_many_questions_they_have() -> None:
    large = resampled({"s": observed([1.0] * 90)}, observed([0.0] * 90), samples=100, stratum=0)
    small = resampled({"s": observed([0.0] * 10)}, observed([0.0] * 10), samples=100, stratum=1)
    found = differences([large, small])["s"]["recall_10"]
    assert (found.mean, found.low, found.high, found.n) == (0.5, 0.5, 0.5, 100)


def test_sets_are_resampled_independently() -> None:
    values = observed([1.0, 0.0] * 50)
    one = resampled({"s": values}, observed([0.0] * 100), stratum=0)
    two = resampled({"s": values}, observed([0.0] * 100), stratum=1)
    alone, both = differences([one])["s"]["recall_10"], differences([one, two])["s"]["recall_10"]
    # The standard error of the mean of two independent sets is that of one, over the root of 2.
    assert (both.high - both.low) / (alone.high - alone.low) == pytest.approx(0.5**0.5, abs=0.05)


@given(pairs)
@settings(max_examples=50)
def test_an_interval_lies_around_its_mean_and_turns_with_the_sides(
    values: list[tuple[float | None, float | None]],
) -> None:
    left, right = observed([own for own, _ in values]), observed([other for _, other in values])
    forth = differences([resampled({"s": left}, right, samples=200)])["s"].get("recall_10")
    back = differences([resampled({"s": right}, left, samples=200)])["s"].get("recall_10")
    if forth is None or back is None:
        assert forth is back is None
        assert not any(own is not None and other is not None for own, other in values)
        return
    assert -1.0 <= forth.low <= forth.high <= 1.0
    assert (forth.mean, forth.n) == (pytest.approx(-back.mean), back.n)
    assert (forth.low, forth.high) == (pytest.approx(-back.high), pytest.approx(-back.low))


@given(pairs)
@settings(max_examples=30)
def test_a_system_is_no_way_from_itself(values: list[tuple[float | None, float | None]]) -> None:
    same = observed([own for own, _ in values])
    for found in differences([resampled({"s": same}, same, samples=50)])["s"].values():
        assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_columns_are_resampled_alike_and_in_blocks_too() -> None:
    values = np.arange(12, dtype=float).reshape(6, 2)
    means = bootstrap_means(values, samples=100)
    assert means.shape == (100, 2)
    assert np.allclose(means[:, 1] - means[:, 0], 1.0), "each row stays together"
    many = bootstrap_means(np.arange(5_000, dtype=float)[:, None], samples=1_000)  # more than is drawn at once
    assert many.mean() == pytest.approx(2_499.5, rel=0.01)
    assert many.std() == pytest.approx(5_000 / 12**0.5 / 5_000**0.5, rel=0.1)


def test_ndcg_by_hand() -> None:
    assert ndcg_at(["a", "b"], {"a", "b"}, 10) == 1.0
    assert ndcg_at(["x", "a", "a"], {"a"}, 10) == pytest.approx(1 / np.log2(3))
    assert ndcg_at(["x", "a"], {"a"}, 1) == 0.0
    assert ndcg_at(["a", "x", "b"], {"a", "b", "c"}, 2) == pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert ndcg_at([], {"a"}, 10) == 0.0
