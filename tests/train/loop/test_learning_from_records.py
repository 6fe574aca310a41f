"""From records to tasks: what users showed becomes gold, the suite stays unseen, and nothing else becomes a task."""

from __future__ import annotations

import pytest

from thresher.train.loop.learning import learned
from thresher.train.loop.settings import TasksSettings
from thresher.train.production.records import ServedResult, ServedSearch, Signal
from thresher.train.tasks.task import Task

RESULTS = tuple(ServedResult(id=f"c{n}", document_id=f"d{n}", rank=n) for n in range(1, 4))
SETTINGS = TasksSettings()


def served(name: str, question: str, at: float = 0.0, **given: object) -> ServedSearch:
    fields: dict[str, object] = {"consent": "setting", "policy": "builtin", "collections": ("harbour",), **given}
    return ServedSearch.model_validate({"id": name, "created": at, "question": question, "results": RESULTS, **fields})


def said(search: ServedSearch, kind: str, value: object = None) -> Signal:
    return Signal.model_validate(
        {"search_id": search.id, "tenant": search.tenant, "created": search.created + 1, "kind": kind, "value": value}
    )


def tasks(*records: tuple[ServedSearch, list[Signal]], suite: tuple[Task, ...] = (), since: float = 0.0):  # type: ignore[no-untyped-def]
    return learned(records, suite, SETTINGS, collection="harbour", new_since=since)


def test_what_users_cited_or_marked_becomes_gold_and_their_answers_answers() -> None:
    one = served("s1", "Who built the Alma?")
    found = tasks(
        (
            one,
            [said(one, "cited", "c2"), said(one, "evidence", {"c1": False, "c3": True}), said(one, "answer", "Brask")],
        )
    )
    [task] = found.tasks
    assert (task.question, task.gold_ids, task.answers, task.source) == (
        "Who built the Alma?",
        ("d2", "d3"),
        ("Brask",),
        "production",
    )
    assert (found.new, found.records, found.left_out) == (1, 1, {})


@pytest.mark.parametrize(
    "signals",
    [[], [("opened", "c1")], [("thumbs", 1.0)], [("abandoned", None)], [("evidence", {"c1": False})]],
    ids=["silence", "an opening", "a thumb", "leaving", "a mark against"],
)
def test_what_does_not_show_what_was_wanted_makes_no_task(signals: list[tuple[str, object]]) -> None:
    one = served("s1", "Who built the Alma?")
    found = tasks((one, [said(one, *signal) for signal in signals]))
    assert found.tasks == ()
    assert found.left_out == {"nothing is known of them": 1}


def test_one_question_of_many_users_is_one_task() -> None:
    records = []
    for number, (question, evidence) in enumerate(
        [("Who built the Alma?", "c1"), ("who built  the ALMA?", "c3"), ("Who sold the Corran?", "c2")]
    ):
        one = served(f"s{number}", question, at=float(number))
        records.append((one, [said(one, "cited", evidence)]))
    found = tasks(*reversed(records), since=2.0)
    assert [task.gold_ids for task in found.tasks] == [("d1", "d3"), ("d2",)]
    assert found.new == 1


def test_an_old_question_that_is_asked_again_counts_as_new() -> None:
    old, again = served("s1", "Who built the Alma?", at=1.0), served("s2", "Who built the Alma?", at=9.0)
    found = tasks((old, [said(old, "cited", "c1")]), (again, [said(again, "cited", "c2")]), since=5.0)
    assert (len(found.tasks), found.new) == (1, 1)


def test_the_last_answer_counts_for_answers_of_several_are_no_aliases() -> None:
    old, again = served("s1", "Who built the Alma?", at=1.0), served("s2", "Who built the Alma?", at=9.0)
    found = tasks((again, [said(again, "answer", "Edda Brask")]), (old, [said(old, "answer", "Sorley")]))
    assert found.tasks[0].answers == ("Edda Brask",)


def test_questions_like_those_of_the_suite_are_never_learned() -> None:
    suite = (Task("t1", "Who founded the works that made the engine of the ferry Alma?", gold_ids=("d1",)),)
    texts = [
        "Who founded the works that made the engine of the ferry Alma?",
        "who founded the works, that made the engine of ferry Alma",
        "When was the lighthouse at Hask automated?",
    ]
    records = [(served(f"s{n}", text), [said(served(f"s{n}", text), "cited", "c1")]) for n, text in enumerate(texts)]
    found = tasks(*records, suite=suite)
    assert [task.question for task in found.tasks] == [texts[2]]
    assert found.left_out == {"like a question of the gate's suite": 2}


def test_searches_elsewhere_teach_nothing_here() -> None:
    others = [
        served("s1", "one question", collections=("letters",)),
        served("s2", "another one", collections=("harbour", "letters")),
    ]
    found = tasks(*((search, [said(search, "cited", "c1")]) for search in others))
    assert (found.tasks, found.left_out) == ((), {"searched elsewhere": 2})


def test_a_record_without_consent_is_never_learned_from() -> None:
    """None is written, and if one were, it teaches nothing."""
    one = served("s1", "Who built the Alma?").model_copy(update={"consent": ""})
    found = tasks((one, [said(one, "cited", "c1")]))
    assert (found.tasks, found.left_out) == ((), {"no consent": 1})


def test_the_newest_are_kept() -> None:
    few = TasksSettings(maximum=2)
    records = [(served(f"s{n}", f"question number{n}", at=float(n)), []) for n in range(5)]
    records = [(search, [said(search, "cited", "c1")]) for search, _ in records]
    found = learned(records, (), few, collection="harbour", new_since=0.0)
    assert [task.question for task in found.tasks] == ["question number3", "question number4"]
