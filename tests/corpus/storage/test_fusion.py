from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from thresher.corpus.retrieval.fusion import reciprocal_rank_fusion

rankings = st.lists(st.lists(st.integers(1, 30), unique=True, max_size=20), min_size=1, max_size=3)


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = dict(reciprocal_rank_fusion([[7, 8], [8]]))
    assert fused == {7: 1 / 61, 8: 1 / 62 + 1 / 61}


def test_ties_go_to_the_earlier_ranking_then_the_smaller_id() -> None:
    # 5 and 9 stand first in one ranking each: same score.
    assert [i for i, _ in reciprocal_rank_fusion([[9], [5]])] == [9, 5]
    assert [i for i, _ in reciprocal_rank_fusion([[9, 5], [5, 9]])] == [9, 5]


@given(rankings)
def test_every_id_comes_once_in_falling_order(lists: list[list[int]]) -> None:
    fused = reciprocal_rank_fusion(lists)
    assert sorted(i for i, _ in fused) == sorted(set(itertools.chain(*lists)))
    assert all(first[1] >= second[1] for first, second in itertools.pairwise(fused))


@given(rankings, st.integers(0, 2), st.integers(0, 19))
def test_climbing_in_one_ranking_never_lowers_an_id(lists: list[list[int]], which: int, place: int) -> None:
    ranking = lists[which % len(lists)]
    if len(ranking) < 2:
        return
    place = 1 + place % (len(ranking) - 1)
    climber = ranking[place]
    before = dict(reciprocal_rank_fusion(lists))[climber]
    ranking[place - 1], ranking[place] = ranking[place], ranking[place - 1]
    assert dict(reciprocal_rank_fusion(lists))[climber] > before
