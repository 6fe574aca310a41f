"""Which tasks are evaluated, and that a kill costs no evaluation but the one being written."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.errors import RunError
from thresher.train.tasks.task import Task
from thresher.train.trainer.environment import questions_of, spread_over
from thresher.train.trainer.evaluating import EVALUATIONS, Evaluation, append_evaluation, read_evaluations
from thresher.train.trainer.settings import EvaluationSettings, Tasks


@given(st.integers(0, 60), st.integers(1, 60))
def test_tasks_are_taken_at_even_distances(count: int, limit: int) -> None:
    tasks = tuple(Task(f"t{number}", "?") for number in range(count))
    taken = spread_over(tasks, limit)
    assert len(taken) == min(count, limit)
    places = [tasks.index(task) for task in taken]
    assert places == sorted(set(places)), "in order, each once"
    gaps = {after - before for before, after in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert not places or places[0] == 0


def test_a_file_that_is_sorted_by_kind_is_evaluated_on_every_kind(tmp_path: Path) -> None:
    lines = [f'{{"question": "q{n}?", "type": "kind-{n // 10}", "split": "dev"}}\n' for n in range(40)]
    lines.append('{"question": "what is trained?", "split": "train"}\n')
    (tmp_path / "tasks.jsonl").write_text("".join(lines))
    questions = questions_of(Tasks(path=str(tmp_path / "tasks.jsonl")), EvaluationSettings(limit=8))
    assert [task.type for task in questions.dev] == [f"kind-{n // 2}" for n in range(8)]


def evaluation(step: int, label: str = "step") -> Evaluation:
    return Evaluation(label=label, step=step, version=step, questions=2)


def test_half_a_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    assert read_evaluations(tmp_path) == []
    append_evaluation(tmp_path, evaluation(1))
    whole = (tmp_path / EVALUATIONS).read_bytes()
    (tmp_path / EVALUATIONS).write_bytes(whole + whole[: len(whole) // 2])
    assert read_evaluations(tmp_path) == [evaluation(1)]
    append_evaluation(tmp_path, evaluation(2))
    append_evaluation(tmp_path, evaluation(2).model_copy(update={"questions": 3}))
    append_evaluation(tmp_path, evaluation(0, "before"))
    assert read_evaluations(tmp_path) == [
        evaluation(0, "before"),
        evaluation(1),
        evaluation(2).model_copy(update={"questions": 3}),
    ]
    assert (tmp_path / EVALUATIONS).read_bytes().count(b"\n") == 4


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    append_evaluation(tmp_path, evaluation(1))
    with (tmp_path / EVALUATIONS).open("ab") as file:
        file.write(b'{"label": "step"}\n')
    with pytest.raises(RunError, match=r"evaluations\.jsonl:2 is no evaluation"):
        read_evaluations(tmp_path)
