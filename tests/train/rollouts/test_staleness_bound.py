"""The bound by itself: nothing grows stale, nothing waits for ever, and no more is started than can be trained."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.train.rollouts.staleness import Bound


@dataclass(order=True)
class Running:
    ends: float
    number: int
    oldest: int


@settings(max_examples=300)
@given(
    bound=st.builds(Bound, st.integers(0, 4), st.integers(1, 5)),
    slots=st.integers(1, 12),
    tail=st.floats(0.5, 3.0),
    step=st.floats(0.0, 5.0),
    seed=st.integers(0, 2**32),
)
def test_a_trainer_that_takes_what_it_said_never_meets_a_stale_group(
    bound: Bound, slots: int, tail: float, step: float, seed: int
) -> None:
    """A simulation in virtual time: groups of Pareto lengths, one a slot; the trainer needs `step` for each version."""
    dice = random.Random(seed)
    version = taken = number = 0
    now = 0.0
    running: list[Running] = []
    ready: list[Running] = []
    trained: list[int] = []
    trains_until: float | None = None
    while version < 25:
        while len(running) < slots and bound.room(unhanded=len(running) + len(ready), taken=taken):
            heapq.heappush(running, Running(now + dice.paretovariate(tail), number, version))
            number += 1
        assert len(running) + len(ready) + taken <= (bound.max_staleness + 1) * bound.groups_per_step
        if trains_until is None:
            chosen = bound.pick(
                [group.oldest for group in ready],
                [group.oldest for group in running],
                version=version,
                taken=taken,
                count=bound.groups_per_step,
            )
            if chosen is not None:
                assert len(set(chosen)) == len(chosen) == bound.groups_per_step
                groups = [ready[place] for place in chosen]
                for group in groups:
                    assert version - bound.max_staleness <= group.oldest <= version
                    ready.remove(group)
                    trained.append(group.number)
                taken += len(groups)
                trains_until = now + step
                continue
        assert running or trains_until is not None, "nothing runs, and the trainer waits: it would wait for ever"
        if trains_until is not None and (not running or trains_until <= running[0].ends):
            now, trains_until = trains_until, None
            version, taken = version + 1, 0
            assert not any(bound.stale(group.oldest, version) for group in (*running, *ready))
        else:
            group = heapq.heappop(running)
            now = group.ends
            ready.append(group)
    assert len(set(trained)) == len(trained)
    left = {group.number for group in (*running, *ready)}
    assert left.isdisjoint(trained)
    assert left.union(trained) == set(range(number)), "every group that began is trained or under way"
    assert not left or max(left) - min(left) < (bound.max_staleness + 2) * bound.groups_per_step + slots, "none starves"


def test_groups_come_in_order_of_completion_while_nothing_is_due() -> None:
    bound = Bound(max_staleness=2, groups_per_step=2)
    assert bound.pick([3, 3, 2, 3], [2], version=3, taken=0, count=2) == [0, 1]


def test_the_last_chance_of_a_long_group_is_waited_for() -> None:
    bound = Bound(max_staleness=1, groups_per_step=2)
    ready, running = [3, 3, 3], [2]
    assert bound.pick(ready, running, version=3, taken=0, count=1) == [0], "one place is left for it"
    assert bound.pick(ready, running, version=3, taken=1, count=1) is None, "and is kept"
    assert bound.pick(ready, running, version=3, taken=0, count=2) is None
    assert bound.pick([*ready, 2], [], version=3, taken=1, count=1) == [3]


def test_a_deadline_further_off_is_looked_at_too() -> None:
    """Two versions of two: four groups that must be trained by the next version leave no place for a newer one."""
    bound = Bound(max_staleness=2, groups_per_step=2)
    assert bound.pick([3, 2, 2], [2, 2], version=3, taken=0, count=2) == [1, 2]
    assert bound.pick([3, 2, 2], [2], version=3, taken=0, count=2) == [0, 1]


def test_without_staleness_only_the_step_itself_is_started() -> None:
    bound = Bound(max_staleness=0, groups_per_step=3)
    assert bound.room(unhanded=0, taken=0) == 3
    assert bound.room(unhanded=1, taken=2) == 0
    assert bound.pick([4, 4], [4], version=4, taken=0, count=3) is None
    assert bound.pick([4, 4, 4], [], version=4, taken=0, count=3) == [0, 1, 2]


def test_more_than_a_version_was_said_to_take_is_given_at_once_the_oldest_first() -> None:
    bound = Bound(max_staleness=1, groups_per_step=1)
    assert bound.pick([3, 2, None], [2], version=3, taken=1, count=3) == [1, 0, 2]


@pytest.mark.parametrize(("oldest", "stale"), [(None, False), (5, False), (3, False), (2, True)])
def test_what_is_stale(oldest: int | None, stale: bool) -> None:
    assert Bound(max_staleness=2, groups_per_step=8).stale(oldest, 5) is stale
