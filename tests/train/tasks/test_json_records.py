from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.tasks.importing import reading
from thresher.train.tasks.importing.reading import Record, answers_of, json_records
from thresher.train.tasks.task import TaskError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=5)


def records(path: Path) -> list[dict[str, object]]:
    return [record.fields for record in json_records(path)]


@given(items=RECORDS, block=st.integers(1, 40), indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_a_list_is_read_as_a_stream_whatever_is_cut_where(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    items: list[dict[str, object]],
    block: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    monkeypatch.setattr(reading, "_BLOCK", block)
    path = tmp_path / "set.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", newline="")
    assert records(path) == items


@given(items=RECORDS)
def test_lines_of_json_are_read_too(tmp_path: Path, items: list[dict[str, object]]) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    assert records(path) == items


@given(block=st.integers(1, 60))
def test_lines_of_records_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(reading, "_BLOCK", block)
    path = tmp_path / "set.json"
    path.write_text('\n[\n  {"a":\n 1},\n\n  {"b": 2}\n, {"c": 3}]\n', encoding="utf-8")
    assert [record.where.rsplit(":", 1)[1] for record in json_records(path)] == ["3", "6", "7"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"a" 2}]', r":2: not JSON: Expecting ':' delimiter"),
        ('[{"a": 1}\n{"a": 2}]', r":2: not JSON: expected , or \], got '{'"),
        ('[{"a": 1},', r":1: not JSON"),
        ('[{"a": 1}\n\n', r":3: not JSON: the list has no end; was the file cut off\?"),
        ('[{"a": "' + "x" * 5000, r":1: not JSON: Unterminated string"),
        ('[{"a": 1}]\n[]', r":2: something follows the end of the list"),
        ('[{"a": 1}, 7]', r":1: a record is a JSON object, got int"),
        ('{"a": 1}\n{"a"', r":2: not JSON"),
    ],
)
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_broken_files_name_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str, block: int
) -> None:
    monkeypatch.setattr(reading, "_BLOCK", block)
    path = tmp_path / "set.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        records(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot read"):
        records(tmp_path / "absent.json")
    (tmp_path / "latin.json").write_bytes(b'[{"a": "\xe9"}]')
    with pytest.raises(TaskError, match="is not UTF-8"):
        records(tmp_path / "latin.json")


def test_getters_say_what_is_wrong() -> None:
    record = Record({"n": 7, "t": " ", "l": [{"x": 1}, 2]}, "f:3")
    assert record.text("n") == "7"
    assert record.text("absent", required=False) == ""
    with pytest.raises(TaskError, match=r'^f:3: t must be non-empty text, got " "$'):
        record.text("t")
    with pytest.raises(TaskError, match=r"^f:3: n must be a list, got 7$"):
        record.items("n")
    with pytest.raises(TaskError, match=r"^f:3: l\[1\]: a record is a JSON object, got int$"):
        record.records("l")


def test_answers_come_in_many_forms() -> None:
    assert answers_of(None, "f:1") == ()
    assert answers_of(" Ada ", "f:1") == ("Ada",)
    assert answers_of(["Ada", "", "Ada", 1815], "f:1") == ("Ada", "1815")
    with pytest.raises(TaskError, match=r"^f:1: an answer must be text, got true$"):
        answers_of([True], "f:1")
