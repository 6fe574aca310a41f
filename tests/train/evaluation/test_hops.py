from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.train.metrics.hops import chain, hop_recall, hops_found

found = st.lists(st.sampled_from([True, False, None]), max_size=4)


def test_by_hand() -> None:
    assert hops_found(["x", "a", "a", "b"], ["b", "a", None, "c"], 2) == (False, True, None, False)
    assert hops_found(["x", "a", "a", "b"], ["b", "a", None, "c"], 3) == (True, True, None, False)
    tasks = [(True, True), (True, False, True), (False, True), (True,)]
    assert hop_recall(tasks) == {1: 3 / 4, 2: 2 / 3, 3: 1.0}
    assert chain(tasks) == {1: 3 / 4, 2: 1 / 3, 3: 0.0}


def test_a_step_without_gold_is_left_out_and_ends_the_chain() -> None:
    tasks = [(True, None, True), (False, True, True)]
    assert hop_recall(tasks) == {1: 0.5, 2: 1.0, 3: 1.0}
    assert chain(tasks) == {1: 0.5, 2: 0.0, 3: 0.0}, "of the first task, only its first step can be judged"
    assert hop_recall([(None,)]) == chain([(None,)]) == hop_recall([]) == chain([]) == {}


@given(st.lists(found, max_size=6))
def test_a_chain_is_never_stronger_than_its_last_link(tasks: list[list[bool | None]]) -> None:
    steps, chains = hop_recall(tasks), chain(tasks)
    assert all(0.0 <= value <= 1.0 for value in [*steps.values(), *chains.values()])
    complete = [task for task in tasks if None not in task]
    whole, links = chain(complete), hop_recall(complete)
    assert whole.keys() == links.keys()
    assert all(whole[hop] <= links[hop] for hop in whole)
    assert whole.get(1) == links.get(1)


@given(st.lists(st.sampled_from("abcdef"), max_size=10), st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3))
def test_all_hops_are_found_where_all_gold_is(ranked: list[str], steps: list[str]) -> None:
    assert all(hops_found(ranked, steps, 10)) == (set(steps) <= set(ranked))
