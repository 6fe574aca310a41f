from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.tasks.task import Task, TaskError, load_task_set, load_tasks, read_records, task_id, write_tasks

TEXT = st.text(min_size=1, max_size=20).filter(lambda text: text.strip() != "")
TASKS = st.builds(
    Task,
    id=TEXT,
    question=TEXT,
    answers=st.lists(TEXT, max_size=3, unique=True).map(tuple),
    gold_ids=st.lists(TEXT, max_size=3, unique=True).map(tuple),
    hops=st.integers(0, 5),
    type=st.text(max_size=5),
    split=st.sampled_from(["", "train", "dev"]),
    source=st.text(max_size=5),
)


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@given(tasks=st.lists(TASKS, min_size=1, max_size=8, unique_by=lambda task: task.id))
def test_what_is_written_is_read(tmp_path: Path, tasks: list[Task]) -> None:
    path = tmp_path / "tasks.jsonl"
    assert write_tasks(path, tasks) == len(tasks)
    assert load_tasks(path) == tasks
    assert not list(tmp_path.glob("*.new"))


def test_writing_refuses_two_tasks_of_one_id_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    write_tasks(path, [Task("old", "Who?")])
    with pytest.raises(TaskError, match="two tasks have the id 'a'"):
        write_tasks(path, [Task("a", "Who?"), Task("a", "Why?")])
    assert [task.id for task in load_tasks(path)] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_a_task_without_an_id_gets_one_of_its_content(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "t.jsonl",
        {"question": "Who built it?", "answers": ["Bo", "Ada"]},
        {"id": None, "question": "Who built it?", "answers": ["Ada"]},
        {"question": "Who  built\nit? ", "answers": ["Cy"]},
    )
    first, second, third = load_tasks(path)
    assert first.id == task_id("Who built it?", ["Ada", "Bo"])
    assert third.id == task_id("Who built it?", ["Cy"])
    assert len({first.id, second.id, third.id}) == 3
    # The form of the id is kept: sets that were split by it would fall apart.
    assert task_id("Who?", ["Ada"]) == "t-448590b3403c5a73"


def test_repetitions_without_an_id_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", {"question": "Who?"}, {"question": "When?"}, {"question": "Who? "})
    with pytest.raises(TaskError, match=r"t\.jsonl:3: the same question and answers as line 1: leave one of them out"):
        load_tasks(path)


def test_records_keep_fields_of_others(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", {"question": "Who?", "level": "hard"})
    [(record, task)] = read_records(path)
    assert record == {"question": "Who?", "level": "hard"}
    assert task.question == "Who?"


def test_a_set_is_a_file_or_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "harbour"
    folder.mkdir()
    with pytest.raises(TaskError, match=r"harbour is not an evaluation set: it has no queries\.jsonl"):
        load_task_set(folder)
    lines(folder / "queries.jsonl", {"question": "Who?", "split": "dev"}, {"question": "Why?"})
    assert load_task_set(folder).directory is None
    (folder / "corpus.jsonl").write_text("{}\n", encoding="utf-8")
    whole = load_task_set(folder)
    assert (whole.name, whole.directory, len(whole.tasks)) == ("harbour", folder, 2)
    assert [task.question for task in load_task_set(folder, split="dev").tasks] == ["Who?"]
    other = lines(folder / "hard.jsonl", {"question": "How?"})
    beside = load_task_set(other)
    assert (beside.name, beside.directory) == ("hard", folder)
    alone = lines(tmp_path / "tasks.jsonl", {"question": "Who?"})
    assert load_task_set(alone).directory is None


def test_a_folder_of_files_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    lines(tmp_path / "queries.jsonl", {"question": "Who?"})
    assert load_task_set(tmp_path).directory == tmp_path


def test_absurd_json_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(TaskError, match=r"t\.jsonl:1: not JSON"):
        load_tasks(path)
