from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.train.tasks.reach import gold_documents, knows_only_english, reach_facts
from thresher.train.tasks.task import Task

TEXTS = {
    "alma.md": "The Alma is a ferry on Lake Orm.\n\nHer engine came from the Brask works.",
    "brask.md": "Edda Brask founded the works in 1871. They closed in the U.S. crisis.",
    "tug.md": "The tug was sold to Bo & Sons, for 3 pounds.",
}


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with make_collection(tmp_path / "c", TEXTS) as made:
        yield made


def test_gold_is_named_by_document_or_by_source(collection: Collection) -> None:
    found = gold_documents(collection, ["alma.md", "test", "absent.md"])
    assert found == {"alma.md": {"alma.md"}, "test": set(TEXTS), "absent.md": frozenset()}
    assert gold_documents(collection, []) == {}
    assert not knows_only_english(collection)


def test_reach_of_tasks(collection: Collection) -> None:
    tasks = [
        Task("both", "Who founded the works that made the engine?", ("Edda Brask",), ("alma.md", "brask.md")),
        Task("elsewhere", "Who bought the tug?", ("bo  and sons", "BO & SONS"), ("alma.md",)),
        Task("nowhere", "Who sank it?", ("Cy",), ("tug.md",)),
        Task("missing", "When?", ("1871",), ("brask.md", "absent.md")),
        Task("no gold", "Where did the crisis begin?", ("US",)),
        Task("yes", "Is it a ferry?", ("yes",), ("alma.md",)),
        Task("long", "Why?", ("word " * 30,), ("alma.md",)),
        Task("nothing", "What for?"),
        Task("punctuation", "Which sign?", ("?",), ("alma.md",)),
    ]
    told: list[tuple[int, int, str]] = []
    facts = reach_facts(collection, tasks, on_task=lambda n, total, task: told.append((n, total, task.id)))
    found = {reach.task.id: reach for reach in facts.tasks}
    assert told == [(n, 9, task.id) for n, task in enumerate(tasks)]
    assert (found["both"].recall, found["both"].in_gold, found["both"].in_any) == (1.0, True, True)
    assert (found["elsewhere"].in_gold, found["elsewhere"].in_any) == (False, True)
    assert (found["nowhere"].in_gold, found["nowhere"].in_any) == (False, False)
    assert (found["missing"].missing, found["missing"].in_gold) == (("absent.md",), True)
    assert found["missing"].recall == 0.5
    assert (found["no gold"].recall, found["no gold"].in_gold) == (None, None)
    for name in ("yes", "long", "nothing"):
        assert (found[name].in_gold, found[name].in_any) == (None, None)
    assert found["nothing"].recall is None
    assert found["punctuation"].in_any is False
    assert [reach.task.id for reach in facts.missing_gold] == ["missing"]
    assert facts.with_gold == 7
    assert facts.in_gold == pytest.approx(2 / 5)
    assert [reach.task.id for reach in facts.nowhere if reach.task.id != "no gold"] == ["nowhere", "punctuation"]


def test_a_title_counts_as_what_a_document_says(collection: Collection) -> None:
    [reach] = reach_facts(collection, [Task("t", "Which file is about the tug?", ("tug",), ("tug.md",))]).tasks
    assert reach.in_gold is True


def test_without_tasks_there_is_no_mean(collection: Collection) -> None:
    facts = reach_facts(collection, [])
    assert (facts.recall, facts.in_gold, facts.in_any, facts.with_gold) == (None, None, None, 0)
