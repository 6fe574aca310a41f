from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import shared_data

from thresher.train.tasks.task import Task, TaskError, load_tasks, read_tasks

GOOD = {"id": "q1", "question": "Who?", "answers": ["Ada"], "gold_ids": ["d1", "d1"], "hops": 2, "split": "dev"}


def write(path: Path, *records: object) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_reads_tasks_in_order(tmp_path: Path) -> None:
    given = {**GOOD, "source": "mine", "level": "ignored"}
    path = write(tmp_path / "q.jsonl", given, "", {"id": "q2", "question": "Why?"})
    first, second = read_tasks(path)
    assert first == Task("q1", "Who?", ("Ada",), ("d1",), hops=2, split="dev", source="mine")
    assert first.answerable
    assert second == Task("q2", "Why?")
    assert not second.answerable


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"q\.jsonl:2: not JSON"),
        ("[1]", r":2: a task is a JSON object, got list"),
        ({"id": "", "question": "Who?"}, r":2: id must be non-empty text"),
        ({**GOOD, "id": 7}, r":2: id must be non-empty text, got 7"),
        ({**GOOD, "question": " "}, r":2: question must be non-empty"),
        ({**GOOD, "id": "q2", "answers": "Ada"}, r":2: answers must be a list of strings, got 'Ada'"),
        ({**GOOD, "id": "q2", "gold_ids": [1]}, r":2: gold_ids must be a list of strings"),
        ({**GOOD, "id": "q2", "hops": "2"}, r":2: hops must be a whole number"),
        ({**GOOD, "id": "q2", "split": 3}, r":2: split must be text"),
        (GOOD, r":2: id 'q1' was used before, on line 1"),
    ],
)
def test_names_the_line_at_fault(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        list(read_tasks(write(tmp_path / "q.jsonl", GOOD, line)))


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot read"):
        load_tasks(tmp_path / "absent.jsonl")
    with pytest.raises(TaskError, match="holds no queries"):
        load_tasks(write(tmp_path / "empty.jsonl", ""))
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "q\xe9"}')
    with pytest.raises(TaskError, match="not UTF-8"):
        load_tasks(tmp_path / "latin.jsonl")


def test_split_and_limit(tmp_path: Path) -> None:
    records = [{**GOOD, "id": f"q{i}", "split": "dev" if i % 2 else "train"} for i in range(6)]
    path = write(tmp_path / "q.jsonl", *records)
    assert [task.id for task in load_tasks(path, split="dev")] == ["q1", "q3", "q5"]
    assert [task.id for task in load_tasks(path, split="dev", limit=2)] == ["q1", "q3"]
    with pytest.raises(TaskError, match="no split 'test': it has dev, train"):
        load_tasks(path, split="test")
    unsplit = write(tmp_path / "u.jsonl", {"id": "q", "question": "Who?"})
    with pytest.raises(TaskError, match="not split"):
        load_tasks(unsplit, split="dev")


@pytest.mark.parametrize(
    ("name", "queries", "without_gold"),
    [("musique", 392, 0), ("hotpotqa", 398, 0), ("mtrag_un", 507, None), ("multihop_rag_partial", 500, None)],
)
def test_reads_the_evaluation_sets(name: str, queries: int, without_gold: int | None) -> None:
    tasks = load_tasks(shared_data(name) / "queries.jsonl")
    assert len(tasks) == queries
    unanswerable = sum(not task.answerable for task in tasks)
    assert unanswerable == without_gold if without_gold is not None else unanswerable > 0


@pytest.mark.parametrize(
    ("answers", "kind", "found"),
    [
        (("Insufficient information.",), "", ()),
        (("I do not know.", "Sorry"), "", ("Sorry",)),
        (("Which case are you referring to?",), "UNDERSPECIFIED", ()),
        (("I do not have details about giant sequoias.",), "null_query", ()),
        (("Ada",), "bridge", ("Ada",)),
    ],
)
def test_that_there_is_no_answer_is_none(answers: tuple[str, ...], kind: str, found: tuple[str, ...]) -> None:
    assert Task("t", "Who?", answers, type=kind).to_be_found == found
    assert Task("t", "Who?", answers, ("d1",), type=kind).to_be_found == answers


@pytest.mark.parametrize("name", ["multihop_rag_partial", "mtrag_un"])
def test_no_question_of_the_sets_without_gold_has_an_answer(name: str) -> None:
    tasks = [task for task in load_tasks(shared_data(name) / "queries.jsonl") if not task.gold_ids]
    assert len(tasks) > 50
    assert {task.type: task.to_be_found for task in tasks if task.to_be_found} == {}
