"""Sets of questions: which of them are asked, and what their gold names in a collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import make_collection

from thresher.train.evaluation.sets import gold_in, load_sets, prepared_collection
from thresher.train.tasks.task import Excerpt, Task, TaskError

TEXT = "# Ferries\n\nThe Alma was built in 1931.\n\nThe Alma was sold in 1958.\n"


def write_set(directory: Path, *queries: dict[str, Any]) -> Path:
    directory.mkdir(parents=True)
    (directory / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    return directory


def query(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "question": f"What of {name}?", **fields}


def test_a_set_without_splits_has_two_halves(tmp_path: Path) -> None:
    split = write_set(tmp_path / "split", query("a", split="dev"), query("b", split="train"), query("c", split="dev"))
    whole = write_set(tmp_path / "whole", *(query(name, gold_ids=[name]) for name in "defgh"))
    first, second = load_sets([split, whole], split="dev")
    assert ([task.id for task in first.tasks], first.split, first.halved) == (["a", "c"], "dev", False)
    [other] = load_sets([whole], split="train")
    assert second.halved
    assert second.tasks
    assert other.tasks
    assert {task.id for task in (*second.tasks, *other.tasks)} == set("defgh")
    assert not {task.id for task in second.tasks} & {task.id for task in other.tasks}
    assert [len(own.tasks) for own in load_sets([split, whole], limit=1)] == [1, 1]
    with pytest.raises(TaskError, match="its halves are called train and dev"):
        load_sets([whole], split="test")


def test_sets_that_have_other_splits_are_all_named(tmp_path: Path) -> None:
    paths = [
        write_set(tmp_path / name, query("a", split=split))
        for name, split in zip("xyz", ("dev", "test", "train"), strict=True)
    ]
    with pytest.raises(TaskError, match=r"no split 'dev' in y \(it has test\); z \(it has train\)"):
        load_sets(paths, split="dev")


def test_sets_have_names_of_their_own(tmp_path: Path) -> None:
    one, two = write_set(tmp_path / "one" / "dev", query("a")), write_set(tmp_path / "two" / "dev", query("a"))
    assert [own.name for own in load_sets([one, two])] == ["one/dev", "two/dev"]
    with pytest.raises(TaskError, match="given twice"):
        load_sets([one, two, one])


def excerpt(start: int, text: str, document: str = "ferries.md") -> Excerpt:
    return Excerpt(document, start, start + len(text), text)


def task(name: str, *excerpts: Excerpt, gold: tuple[str, ...] = ("elsewhere",)) -> Task:
    return Task(name, "?", gold_ids=gold, excerpts=excerpts)


def test_excerpts_are_where_their_text_is(tmp_path: Path) -> None:
    sold = TEXT.index("The Alma was sold")
    with make_collection(tmp_path / "c", {"ferries.md": TEXT, "other.md": "nothing"}) as collection:
        tasks = [
            task("exact", excerpt(sold, "The Alma was sold in 1958.")),
            task("off", excerpt(sold + 7, "The Alma was sold in 1958.")),
            task("second", excerpt(sold + 3, "The Alma")),
            task("lines", excerpt(0, "# Ferries\r\n\r\nThe Alma")),
            task("gone", excerpt(0, "The Alma was bought"), excerpt(0, "# Ferries")),
            task("nowhere", excerpt(0, "# Ferries", "absent.md")),
        ]
        gold = gold_in(tasks, collection)
        assert gold.places["exact"] == gold.places["off"] == (("ferries.md", sold, sold + 26),)
        assert gold.places["second"] == (("ferries.md", sold, sold + 8),), "the nearest of two"
        assert gold.places["lines"] == (("ferries.md", 0, 19),)
        assert gold.places.keys() == {"exact", "off", "second", "lines"}
        assert (gold.excerpts, gold.not_located) == (7, 2)
        assert (gold.by_document, gold.unknown) == (False, 0)
        known = gold_in([task("a", gold=("other.md", "elsewhere"))], collection)
        assert (known.by_document, known.unknown) == (True, 1)


@pytest.mark.parametrize("written", [TEXT, TEXT.replace("\n", "\r\n"), "\ufeff" + TEXT], ids=["lf", "crlf", "bom"])
def test_excerpts_of_files_are_found_in_what_the_loader_made_of_them(
    tmp_path: Path, thresher_home: Path, written: str
) -> None:
    marked = "The Alma was sold in 1958."
    at = written.index(marked)
    record = {"document": "ferries", "start": at, "end": at + len(marked), "text": marked}
    directory = write_set(tmp_path / "set", query("q", gold_ids=["p-7"], excerpts=[record]))
    (directory / "docs").mkdir()
    (directory / "docs" / "ferries.md").write_text(written, encoding="utf-8", newline="")
    (directory / "corpus.jsonl").write_text(json.dumps({"id": "p-7", "text": "somebody's passage"}) + "\n")
    [own] = load_sets([directory])
    assert own.by_span
    with prepared_collection(directory, "wordllama", whole_documents=True) as collection:
        gold = gold_in(own.tasks, collection)
        [(document, start, end)] = gold.places["q"]
        assert collection.text(document)[start:end] == marked
    with prepared_collection(directory, "wordllama") as collection:
        assert [document.id for document in collection.documents()] == ["p-7"]
    assert len(list((thresher_home / "eval").iterdir())) == 2
