"""Rollouts by the step that trained on them, found by what the log says of each step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runs_support import lost, real_groups, write_steps
from support import make_collection
from trace_support import TEXTS

from thresher.train.monitoring.best_worst import best_and_worst, read_rollout, rollout_lines
from thresher.train.rollouts.recording import RecordingError
from thresher.train.rollouts.rollout import Group


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Group]]:
    with make_collection(tmp_path_factory.mktemp("ferries") / "collection", TEXTS) as collection:
        yield real_groups(collection, 8)


def _steps(folder: Path) -> list[int | None]:
    """The step of each group, in the order of the file."""
    lines, problems = rollout_lines(folder / "rollouts.jsonl", folder / "log.jsonl")
    assert not problems
    return [line.step for line in lines if line.sample == 0]


def test_every_rollout_has_its_step(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(step, groups[2 * step : 2 * step + 2]) for step in range(4)])
    assert _steps(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_of_a_stretch_that_was_abandoned_each_rollout_keeps_its_step(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(0, groups[:2]), (1, groups[2:4]), (1, groups[4:6]), (2, groups[6:])])
    assert _steps(tmp_path) == [0, 0, 1, 1, 1, 1, 2, 2]


def test_steps_without_rollouts_and_rollouts_without_a_step_shift_nothing(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(0, groups[:2])], rollouts=False)  # logging was off, or the process was killed in between
    write_steps(tmp_path, [(1, groups[2:4])])
    (tmp_path / "log.jsonl").rename(tmp_path / "kept")
    write_steps(tmp_path, [(2, groups[4:6])])
    (tmp_path / "log.jsonl").write_bytes((tmp_path / "kept").read_bytes())  # the line of step 2 is gone
    write_steps(tmp_path, [(3, groups[6:])])
    assert _steps(tmp_path) == [1, 1, None, None, 3, 3]


def test_best_and_worst_are_ranked_and_never_the_same(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(0, groups[:3]), (1, [*groups[3:5], lost(9)])])
    lines, _ = rollout_lines(tmp_path / "rollouts.jsonl", tmp_path / "log.jsonl")
    totals = {line.number: line.total for line in lines if line.step == 0}
    for count in (1, 2, 3, 4, 10):
        best, worst = best_and_worst(lines, 0, count)
        ranked = sorted(totals, key=lambda number: -(totals[number] or 0))
        assert [line.number for line in best] == ranked[: min(count, 3)]
        assert [line.number for line in worst] == ranked[len(best) :][-count:]
    best, worst = best_and_worst(lines, 1, 10)
    assert len(best) + len(worst) == 4, "what a fault took away is neither"
    assert [line.fault for line in lines if line.step == 1][-1] == "the server <went> away"


def test_a_line_says_what_its_rollout_was(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(0, groups[:2])])
    lines, _ = rollout_lines(tmp_path / "rollouts.jsonl", tmp_path / "log.jsonl")
    for line in lines:
        record = read_rollout(tmp_path / "rollouts.jsonl", line.number)
        assert (record.group, record.sample) == (line.group, line.sample)
        assert record.trajectory is not None
        assert record.reward is not None
        assert (line.turns, line.ended) == (len(record.trajectory.turns), record.trajectory.stop_reason)
        assert (line.total, line.question) == (record.reward.total, record.task.question)


def test_torn_and_foreign_lines_are_passed_over(groups: list[Group], tmp_path: Path) -> None:
    write_steps(tmp_path, [(0, groups[:2])])
    path = tmp_path / "rollouts.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"group": 1}\n7\n' + whole[:300])
    lines, problems = rollout_lines(path, tmp_path / "log.jsonl")
    assert [line.step for line in lines] == [0] * 4
    assert problems == ["rollouts.jsonl:5 is not a rollout", "rollouts.jsonl:6 is not a rollout"]
    for number, says in ((5, "is not a rollout"), (7, "has no rollout 7"), (99, "has no rollout 99")):
        with pytest.raises(RecordingError, match=says):
            read_rollout(path, number)
    assert rollout_lines(tmp_path / "none.jsonl", tmp_path / "log.jsonl")[1]
