from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.curriculum import Curriculum, CurriculumError, CurriculumSettings, Stage
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.tasks.task import Task


def some(count: int, hops: int = 1) -> list[Task]:
    return [Task(f"t{n}", f"question {n}", hops=n % hops + 1) for n in range(count)]


def drawn(curriculum: Curriculum, count: int) -> list[str]:
    return [task.id for task in islice(curriculum, count)]


def group(task: Task, *rewards: float) -> Group:
    rollouts = [Rollout(task, 0, n, None, None, Reward(reward, {}, {})) for n, reward in enumerate(rewards)]
    return Group(0, task, tuple(rollouts))


@given(st.integers(1, 20), st.integers(0, 5), st.integers(1, 4))
def test_every_epoch_holds_every_task_once(count: int, seed: int, epochs: int) -> None:
    curriculum = Curriculum(some(count), CurriculumSettings(seed=seed, epochs=epochs))
    order = [task.id for task in curriculum]
    assert len(order) == count * epochs
    for epoch in range(epochs):
        assert sorted(order[epoch * count : (epoch + 1) * count]) == sorted(task.id for task in some(count))
    assert curriculum.epoch == epochs


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(drawn(Curriculum(some(12), CurriculumSettings(seed=seed)), 24)) for seed in (0, 0, 1)}
    assert len(orders) == 2
    assert all(order[:12] != order[12:] for order in orders)
    assert drawn(Curriculum(some(4), CurriculumSettings(shuffle=False)), 6) == ["t0", "t1", "t2", "t3", "t0", "t1"]


def test_one_task_comes_for_ever() -> None:
    assert drawn(Curriculum(some(1)), 4) == ["t0"] * 4


def test_easy_tasks_come_first() -> None:
    stages = (Stage(0, 1), Stage(6, 2), Stage(12, None))
    curriculum = Curriculum(some(12, hops=4), CurriculumSettings(stages=stages))
    hops = [task.hops for task in islice(curriculum, 24)]
    assert set(hops[:6]) == {1}
    assert max(hops[6:12]) == 2
    assert max(hops[12:]) == 4
    assert curriculum.hops is None


def test_where_nothing_is_as_easy_as_a_stage_the_easiest_are_taken() -> None:
    tasks = [Task("a", "a", hops=3), Task("b", "b", hops=4)]
    assert drawn(Curriculum(tasks, CurriculumSettings(stages=(Stage(0, 1),))), 3) == ["a"] * 3


def test_tasks_that_were_constant_come_less_often() -> None:
    tasks = some(40)
    curriculum = Curriculum(tasks, CurriculumSettings(constant_share=0.5, least_share=0.2, epochs=60))
    seen: Counter[str] = Counter()
    for task in curriculum:
        seen[task.id] += 1
        curriculum.settled(task, group(task, 1.0, 1.0) if task.id in ("t0", "t1") else group(task, 0.0, 1.0))
    assert {seen[f"t{n}"] for n in range(2, 40)} == {60}
    for name in ("t0", "t1"):
        assert 5 < seen[name] < 30, "down to a fifth, and never away"
    assert curriculum.share(tasks[0]) == 0.2
    curriculum.settled(tasks[0], group(tasks[0], 0.0, 1.0))
    assert curriculum.share(tasks[0]) == 1.0, "as soon as it teaches something"


def test_constant_tasks_alone_are_still_tried() -> None:
    tasks = some(2)
    curriculum = Curriculum(tasks, CurriculumSettings(constant_share=0.01, least_share=0.01))
    for task in islice(curriculum, 50):
        curriculum.settled(task, group(task, 1.0, 1.0))
    assert len(drawn(curriculum, 10)) == 10


@given(st.integers(1, 9), st.integers(0, 30), st.sets(st.integers(0, 29)), st.integers(1, 3))
def test_a_place_is_saved_and_taken_up(count: int, given_out: int, settled: set[int], hops: int) -> None:
    """What was under way comes first, then what the first run would have given out next."""
    settings = CurriculumSettings(stages=(Stage(0, 1), Stage(5, None)))
    first = Curriculum(some(count, hops), settings)
    under_way = []
    for number, task in enumerate(islice(first, given_out)):
        if number in settled:
            first.settled(task, group(task, 0.0, 1.0))
        else:
            under_way.append(task.id)
    second = Curriculum(some(count, hops), settings)
    second.load_state(json.loads(json.dumps(first.state_dict())))
    assert json.loads(json.dumps(second.state_dict())) | {"drawn": given_out} == first.state_dict()
    assert sorted(drawn(second, len(under_way))) == sorted(under_way)
    assert drawn(second, 12) == drawn(first, 12)


def test_dropped_tasks_are_not_under_way_any_more() -> None:
    curriculum = Curriculum(some(3))
    task = next(curriculum)
    curriculum.settled(task, None)
    assert curriculum.state_dict()["pending"] == []


def test_a_place_among_other_tasks_is_refused() -> None:
    with pytest.raises(CurriculumError, match="other tasks"):
        Curriculum(some(3)).load_state(Curriculum(some(4)).state_dict())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stages": (Stage(1, 2),)}, "begin at 0"),
        ({"stages": (Stage(0, 1), Stage(0, 2))}, "rise"),
        ({"constant_share": 0.0}, "constant_share"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(CurriculumError, match=message):
        CurriculumSettings(**fields)  # type: ignore[arg-type]


def test_tasks_that_cannot_be_ordered_are_refused() -> None:
    with pytest.raises(CurriculumError, match="no tasks"):
        Curriculum([])
    with pytest.raises(CurriculumError, match="two tasks have the id 't0'"):
        Curriculum([*some(1), *some(1)])
