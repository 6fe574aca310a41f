"""Excerpts and decompositions of tasks: read, checked and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.train.tasks.task import Excerpt, Step, TaskError, load_tasks, write_tasks

EXCERPT = {"document": "a.md", "start": 2, "end": 5, "text": "llo"}
STEP = {"question": "Who?", "answer": "Edda", "gold_id": "a"}


def write(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps({"question": "fine?"}) + "\n" + json.dumps({"question": "Who?", **fields}) + "\n")
    return path


def test_they_are_kept_and_written_again(tmp_path: Path) -> None:
    file = write(
        tmp_path / "tasks.jsonl", excerpts=[EXCERPT, {**EXCERPT, "doc": "b"}], decomposition=[STEP, {"question": "#1?"}]
    )
    _, task = load_tasks(file)
    assert task.excerpts[0] == Excerpt("a.md", 2, 5, "llo")
    assert task.decomposition == (Step("Who?", "Edda", "a"), Step("#1?"))
    again = tmp_path / "again.jsonl"
    write_tasks(again, [task])
    assert load_tasks(again) == [task]
    plain, _ = load_tasks(file)
    assert {"excerpts", "decomposition"}.isdisjoint(plain.record())


def test_a_document_may_be_called_doc(tmp_path: Path) -> None:
    named = {name: value for name, value in EXCERPT.items() if name != "document"}
    _, task = load_tasks(write(tmp_path / "t.jsonl", excerpts=[{**named, "doc": "b"}]))
    assert task.excerpts[0].document == "b"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"excerpts": "x"}, "excerpts must be a list of objects"),
        ({"excerpts": ["x"]}, r"excerpts\[0\] must be an object"),
        ({"excerpts": [EXCERPT, {**EXCERPT, "start": -1}]}, r"excerpts\[1\]: start must be an offset"),
        ({"excerpts": [{**EXCERPT, "end": "5"}]}, "end must be an offset"),
        ({"excerpts": [{**EXCERPT, "end": True}]}, "end must be an offset"),
        ({"excerpts": [{**EXCERPT, "end": 2}]}, "end must be greater than start"),
        ({"excerpts": [{**EXCERPT, "text": " "}]}, "text must be non-empty"),
        ({"excerpts": [{**EXCERPT, "document": None}]}, "document must be non-empty"),
        ({"decomposition": {}}, "decomposition must be a list"),
        ({"decomposition": [{**STEP, "question": ""}]}, r"decomposition\[0\]: question must be non-empty"),
        ({"decomposition": [{**STEP, "gold_id": 7}]}, "gold_id must be text"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    file = write(tmp_path / "t.jsonl", **fields)
    with pytest.raises(
        TaskError, match=rf"t\.jsonl:2: .*{message}" if "[" not in message else rf"t\.jsonl:2: {message}"
    ):
        load_tasks(file)
