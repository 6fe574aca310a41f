"""Alarms: every recorded collapse raises its own, healthy runs raise none, and how a log is read changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.monitoring.alarms import (
    BASELINE,
    LOOK_BACK,
    RULES,
    Alarm,
    Monitor,
    above_lowest,
    alarms_of,
    jump,
    level,
    not_finite,
    of_baseline,
    spread,
)
from thresher.train.monitoring.log import LogFollower, LogWriter, StepLog, read_log

DATA = Path(__file__).parent / "data"
COLLAPSES = (
    "one_search_stop",
    "no_search",
    "malformed_rate",
    "prune_all",
    "return_all",
    "spawn_without_use",
    "reasoning_decay",
    "unseen_cited",
)
HEALTHY = ("healthy", "healthy_swarm")
BEGINS, ENDS = 12, 30
"""Steps between which the tricks are learned in the recordings."""


def alarm(name: str, steps: list[StepLog]) -> Alarm:
    [found] = [alarm for alarm in alarms_of(steps) if alarm.name == name]
    return found


@pytest.mark.parametrize("name", COLLAPSES)
def test_a_recorded_collapse_raises_its_alarm_while_there_is_time(name: str) -> None:
    raised = alarm(name, read_log(DATA / f"{name}.jsonl"))
    assert BEGINS < raised.step <= ENDS
    assert raised.cleared is None
    assert raised.values
    assert raised.values.keys() == raised.limits.keys()
    assert name in str(raised)
    assert f"step {raised.step}" in str(raised)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_nothing(name: str) -> None:
    steps = read_log(DATA / f"{name}.jsonl")
    assert len(steps) == 40
    assert alarms_of(steps) == []


@pytest.mark.parametrize("name", COLLAPSES)
def test_nothing_is_raised_before_a_collapse_begins(name: str) -> None:
    assert alarms_of(read_log(DATA / f"{name}.jsonl")[:BEGINS]) == []


def test_a_collapse_says_only_what_is_true_of_it() -> None:
    """Alarms that share a cause come together, those of other causes do not."""
    names = {name: {a.name for a in alarms_of(read_log(DATA / f"{name}.jsonl"))} for name in COLLAPSES}
    assert names["reasoning_decay"] == {"reasoning_decay"}
    for name in ("spawn_without_use", "prune_all", "malformed_rate", "return_all"):
        assert all(name not in raised for other, raised in names.items() if other != name), name


def test_every_alarm_says_what_it_means_and_what_to_do() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.means.endswith(".")
        assert rule.advice.endswith(".")
        for way in rule.ways:
            for condition in way:
                assert condition.raise_at != condition.clear_at or condition.measure in (not_finite,), rule.name


def step(number: int, **facts: Any) -> StepLog:
    return StepLog(step=number, facts=facts, groups=4, rollouts=32)  # type: ignore[arg-type]


def of_values(path: str, values: list[float]) -> list[StepLog]:
    return [step(number, **{path: value}) for number, value in enumerate(values)]


def test_a_value_that_wavers_about_a_limit_is_one_alarm() -> None:
    values = [0.05] * 10 + [0.5 + 0.06 * (-1) ** n for n in range(30)]
    raised = [a for a in alarms_of(of_values("pruned_all", values)) if a.name == "prune_all"]
    assert len(raised) == 1
    assert raised[0].cleared is None


def test_an_alarm_ends_below_the_milder_limit_and_can_come_again() -> None:
    values = [0.0] * 8 + [0.6] * 12 + [0.25] * 12 + [0.0] * 12 + [0.9] * 8
    first, second = (a for a in alarms_of(of_values("pruned_all", values)) if a.name == "prune_all")
    assert first.step < 20
    assert first.cleared is not None
    assert first.cleared > 32, "0.25 is below the limit that raises and above the one that clears"
    assert "over at step" in str(first)
    assert second.step > first.cleared
    assert second.cleared is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("malformed_rate", "malformed_rate"),
        ("one_search", "one_search_stop"),
        ("no_search", "no_search"),
        ("empty_handed", "empty_handed"),
    ],
)
def test_a_weak_model_that_learns_raises_nothing_and_one_that_does_not_does(path: str, name: str) -> None:
    falling = [max(0.05, 0.9 - 0.04 * number) for number in range(40)]
    assert alarms_of(of_values(path, falling)) == []
    assert alarm(name, of_values(path, [0.7] * 40)).step == 23
    assert 15 < alarm(name, of_values(path, [0.1] * 15 + [0.7] * 15)).step < 23


def test_one_search_is_no_alarm_where_one_search_finds_everything() -> None:
    easy = [step(n, one_search=0.9).model_copy(update={"terms": {"trajectory_recall": 0.98}}) for n in range(30)]
    assert alarms_of(easy) == []
    hard = [log.model_copy(update={"terms": {"trajectory_recall": 0.6}}) for log in easy]
    assert alarm("one_search_stop", hard).step == 23
    untold = [log.model_copy(update={"terms": {}}) for log in easy]
    assert alarm("one_search_stop", untold).step == 23


def test_sub_agents_of_use_raise_nothing() -> None:
    useful = [step(n, subagents=4.0, useful_share=0.5) for n in range(20)]
    assert alarms_of(useful) == []
    few = [step(n, subagents=0.2, useful_share=0.0) for n in range(20)]
    assert alarms_of(few) == []
    assert alarm("spawn_without_use", [step(n, subagents=4.0, useful_share=0.05) for n in range(20)]).step == 7


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_what_is_not_a_number_is_told_at_once(bad: float, name: str) -> None:
    steps = [StepLog(step=number, loss=0.1, grad_norm=0.5) for number in range(5)]
    broken = StepLog(step=5, loss=0.1, grad_norm=0.5).model_copy(update={name: bad})
    assert alarm("blow_up", [*steps, broken]).step == 5


def test_a_gradient_that_leaps_is_told_and_one_that_varies_is_not() -> None:
    usual = [StepLog(step=n, grad_norm=0.2 + 0.1 * (n % 5)) for n in range(30)]
    assert alarms_of(usual) == []
    assert alarm("blow_up", [*usual, StepLog(step=30, grad_norm=30.0)]).step == 30


def test_entropy_that_vanishes_or_explodes() -> None:
    start = [StepLog(step=n, entropy=1.0) for n in range(12)]
    assert alarms_of([*start, *(StepLog(step=n, entropy=0.6) for n in range(12, 40))]) == []
    assert alarm("entropy_collapse", [*start, *(StepLog(step=n, entropy=0.05) for n in range(12, 40))])
    assert alarm("entropy_blow_up", [*start, *(StepLog(step=n, entropy=4.0) for n in range(12, 40))])


def test_groups_that_teach_nothing_rewards_that_do_not_move_and_rollouts_that_are_lost() -> None:
    flat = [
        StepLog(step=n, reward={"mean": 0.4, "std": 0.0}, groups=8, constant_groups=8, rollouts=64, faults=30)  # type: ignore[arg-type]
        for n in range(30)
    ]
    assert {a.name for a in alarms_of(flat)} == {"constant_groups", "reward_flat", "faults"}
    moving = [
        StepLog(step=n, reward={"mean": 0.4 + 0.01 * n}, groups=8, constant_groups=3, rollouts=64, faults=2)  # type: ignore[arg-type]
        for n in range(30)
    ]
    assert alarms_of(moving) == []


def test_supervised_logs_without_rewards_and_facts_are_watched_too() -> None:
    assert alarms_of([StepLog(step=n, loss=2.0 / (n + 1), grad_norm=1.0) for n in range(40)]) == []


def test_the_measures() -> None:
    assert level([1, 2, 3], 2) == 2.5
    assert level([1], 2) is None
    start = [2.0] * BASELINE
    assert of_baseline([*start, 1.0, 1.0], 2) == 0.5
    assert of_baseline([*start, 1.0], 2) is None
    assert of_baseline([0.0] * BASELINE + [1.0, 1.0], 2) is None
    assert above_lowest([0.4, 0.4, 0.1, 0.1, 0.3, 0.3], 2) == pytest.approx(0.2)
    assert above_lowest([0.0] * 2 + [0.5] * (LOOK_BACK + 5), 2) == 0.0
    assert spread([9, 1, 2, 4], 3) == 3
    assert jump([1, 2, 3, 20], 3) == 10
    assert jump([0, 0, 0, 20], 3) is None
    assert not_finite([math.nan, 1.0], 1) == 0.0
    assert not_finite([1.0, math.nan], 1) == 1.0


def test_a_resumed_run_is_judged_by_what_counts() -> None:
    healthy, collapsed = read_log(DATA / "healthy.jsonl"), read_log(DATA / "prune_all.jsonl")
    monitor = Monitor()
    for log in collapsed:
        monitor.update(log)
    assert monitor.active
    # It was stopped, taken up again at a checkpoint from before the collapse, and went well.
    for log in healthy[BEGINS:]:
        monitor.update(log)
    assert monitor.steps == [*collapsed[:BEGINS], *healthy[BEGINS:]]
    assert monitor.alarms == alarms_of(monitor.steps) == []


@given(
    name=st.sampled_from((*COLLAPSES, *HEALTHY)),
    cuts=st.lists(st.integers(0, 40_000), max_size=12),
    back=st.integers(0, 40),
)
def test_alarms_never_depend_on_how_the_log_is_cut_into_pieces(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: list[int], back: int
) -> None:
    """Pieces end anywhere, within lines too; and a run may go back to an earlier step."""
    lines = (DATA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    data = b"".join(lines[:30] + lines[back:])
    path = tmp_path_factory.mktemp("cut") / "log.jsonl"
    follower, monitor = LogFollower(path), Monitor()
    path.write_bytes(b"")
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        with path.open("ab") as file:
            file.write(data[start:end])
        for log in follower.poll():
            monitor.update(log)
    whole = read_log(path)
    assert monitor.steps == whole
    assert monitor.alarms == alarms_of(whole)


def test_a_follower_waits_for_its_log_and_starts_anew_with_a_shorter_one(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path)
    assert follower.poll() == []
    with LogWriter(tmp_path / "log.jsonl") as writer:
        writer.append(StepLog(step=0, loss=1.0))
        writer.append(StepLog(step=1, loss=1.0))
        assert [log.step for log in follower.poll()] == [0, 1]
        assert follower.poll() == []
    (tmp_path / "log.jsonl").unlink()
    with LogWriter(tmp_path / "log.jsonl") as writer:
        writer.append(StepLog(step=0, loss=2.0))
    assert [(log.step, log.loss) for log in follower.poll()] == [(0, 2.0)]
