from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import shared_data

from thresher.engine.requests import MAX_QUERY_CHARACTERS
from thresher.train.tasks.languages import ENGLISH, UNKNOWN, language_of
from thresher.train.tasks.questions import LeakKind, has_long_answers, is_either_or, is_yes_no, question_facts
from thresher.train.tasks.task import Task, load_tasks


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Who founded the works that made the engine of the ferry Alma?", ENGLISH),
        ("Corran's master?", ENGLISH),
        ("Wer hat die Werft gegründet, und wann war das?", "German"),
        ("Où se trouve la fonderie qui a fait les moteurs du bac ?", "French"),
        ("¿Quién fundó la fábrica que hizo el motor del barco?", "Spanish"),
        ("Chi ha fondato la fabbrica che costruì il motore della nave?", "Italian"),
        ("Onde fica a fábrica que fez o motor da balsa em uso?", "Portuguese"),
        ("Wie heeft de werf opgericht en wanneer was dat?", "Dutch"),
        ("渡轮阿尔玛的发动机是谁制造的？", "Chinese or Japanese"),
        ("フェリー・アルマのエンジンを作ったのは誰ですか", "Japanese"),
        ("페리 알마의 엔진은 누가 만들었습니까?", "Korean"),
        ("Кто построил паром Алма?", "Cyrillic script"),
        ("Rhywbeth hollol wahanol efallai ŵyr", UNKNOWN),
        ("1871 + 1902 = ?", UNKNOWN),
    ],
)
def test_languages(text: str, language: str) -> None:
    assert language_of(text) == language


@given(st.text(max_size=60))
def test_every_text_is_in_some_language(text: str) -> None:
    assert language_of(text)


@pytest.mark.parametrize("name", ["musique", "hotpotqa", "mtrag_un"])
def test_english_sets_are_english(name: str) -> None:
    tasks = load_tasks(shared_data(name) / "queries.jsonl")
    languages = Counter(language_of(task.question) for task in tasks)
    assert languages[ENGLISH] > 0.95 * len(tasks)
    assert languages.total() - languages[ENGLISH] - languages[UNKNOWN] < 0.01 * len(tasks)


def test_questions_that_can_be_guessed() -> None:
    assert is_yes_no(Task("a", "Is it?", ("Yes", "no.")))
    assert not is_yes_no(Task("a", "Is it?", ("Yes", "It is")))
    assert not is_yes_no(Task("a", "Is it?"))
    assert is_either_or(Task("a", "Who was born first, Ada or Bo?", ("Bo",)))
    assert is_either_or(Task("a", "Which is older, the Alma, the Corran?", ("Corran",)))
    assert not is_either_or(Task("a", "Which ferry is called Alma?", ("Alma",)))  # names no other
    assert not is_either_or(Task("a", "Ada or Bo?", ("Cy",)))
    assert not is_either_or(Task("a", "Was it Ada, yes or no?", ("yes",)))
    assert has_long_answers(Task("a", "Why?", ("word " * 16,)))
    assert not has_long_answers(Task("a", "Why?", ("word " * 16, "Ada")))


def test_facts_of_a_set() -> None:
    tasks = [
        Task("a", "Who founded the Brask works?", ("Edda",), ("d1",)),
        Task("b", "who founded the  brask works?", ("Bo",), ("d2",)),
        Task("c", "Who founded the Brask works?", ("EDDA", "Cy"), ("d3",)),
        Task("d", "Where?", (), ("d1",)),
        Task("e", "When?", ("1871",)),
        Task("f", "Why so?"),
        Task("g", "x" * (MAX_QUERY_CHARACTERS + 1), ("y",)),
        Task("h", "how " * 151, ("y",)),
    ]
    facts = question_facts(tasks)

    def ids(found: tuple[Task, ...]) -> str:
        return "".join(task.id for task in found)

    assert ids(facts.without_answers) == "df"
    assert ids(facts.without_gold) == "efgh"
    assert ids(facts.without_both) == "f"
    assert ids(facts.repeated) == "bc"
    assert ids(facts.conflicting) == "b"  # c has an answer in common with a
    assert ids(facts.too_long) == "g"
    assert ids(facts.long) == "h"
    assert {(one.id, two.id) for one, two in facts.near_duplicates} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert facts.leaks == ()
    assert facts.splits == {"": 8}


def test_leaks_between_splits() -> None:
    tasks = [
        Task("a", "Who founded the Brask engine works?", ("Edda",), ("d1",), split="train"),
        Task("b", "The Brask engine works were founded by whom?", ("Edda",), ("d1",), split="dev"),
        Task("c", "Name her who began it all.", ("edda",), ("d1",), split="test"),
        Task("d", "Who founded the Brask engine works?", ("Edda",), ("d9",), split="train"),
        Task("e", "Unlike all others", ("Bo",), ("d5",), split="dev"),
        Task("f", "Who founded the Brask engine works?", ("Edda",), ("d1",)),
    ]
    facts = question_facts(tasks)
    found = {(leak.first.id, leak.second.id, leak.kind) for leak in facts.leaks}
    assert found == {
        ("a", "b", LeakKind.NEAR_DUPLICATE),
        ("b", "d", LeakKind.NEAR_DUPLICATE),
        ("a", "c", LeakKind.SAME_ANSWER_AND_GOLD),
        ("b", "c", LeakKind.SAME_ANSWER_AND_GOLD),
    }
    # A part of a set is held against the whole.
    part = question_facts(tasks[:1], among=tasks)
    assert part.leaks == facts.leaks
    assert part.splits == {"": 1, "dev": 2, "test": 1, "train": 2}
    assert len(part.tasks) == 1
