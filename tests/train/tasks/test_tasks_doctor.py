from __future__ import annotations

from dataclasses import replace

import pytest

from thresher.train.tasks.checks import Level
from thresher.train.tasks.doctor import Diagnosis, Verdict, diagnose, rewards_for
from thresher.train.tasks.questions import question_facts
from thresher.train.tasks.reach import Reach, ReachFacts
from thresher.train.tasks.spread import SpreadFacts
from thresher.train.tasks.task import Task

GOOD_SPREAD = SpreadFacts(
    groups=(),
    faults=0,
    first_fault=None,
    failed=0,
    first_failure=None,
    reward=0.6,
    deviation=0.2,
    constant=0.2,
    solved_by_all=0.1,
    solved_by_none=0.1,
    malformed=0.0,
    by_hops={},
)


def tasks(count: int = 120, **changes: object) -> list[Task]:
    return [
        replace(
            Task(f"q{n}", f"What is known of alpha{n}?", (f"beta{n}",), (f"d{n}",), 2),
            **{"split": "train" if n % 5 else "dev", **changes},  # type: ignore[arg-type]
        )
        for n in range(count)
    ]


def reached(found: list[Task], **changes: object) -> ReachFacts:
    return ReachFacts(
        tuple(replace(Reach(task, (), 0.9, True, True), **changes) for task in found)  # type: ignore[arg-type]
    )


def level(diagnosis: Diagnosis, name: str) -> Level:
    [check] = [check for check in diagnosis.checks if check.name == name]
    assert (check.advice == "") == (check.level is Level.OK), check
    return check.level


def test_a_good_set_is_fit() -> None:
    found = tasks()
    diagnosis = diagnose("good", question_facts(found), reached(found), GOOD_SPREAD, policy="hf:model")
    assert [check.name for check in diagnosis.checks if check.level is not Level.OK] == []
    assert diagnosis.verdict is Verdict.FIT
    document = diagnosis.as_dict()
    assert document["verdict"] == "fit"
    assert document["splits"] == {"dev": 24, "train": 96}
    assert len({check["name"] for check in document["checks"]}) == len(document["checks"])


@pytest.mark.parametrize(
    ("changed", "name", "expected"),
    [
        (tasks(15), "tasks", Level.UNFIT),
        (tasks(50), "tasks", Level.WARNING),
        (tasks(answers=(), gold_ids=()), "without_answers_or_gold", Level.UNFIT),
        (tasks(answers=("word " * 20,)), "long_answers", Level.WARNING),
        (tasks(answers=("word " * 20,), gold_ids=()), "long_answers", Level.UNFIT),
        (tasks(answers=("yes",)), "yes_no", Level.WARNING),
        (tasks(question="Was it Ada or Bo?", answers=("Bo",)), "either_or", Level.WARNING),
        (tasks(question="Who was it?"), "repeated_questions", Level.UNFIT),
        (tasks(question="Who was it?"), "near_duplicates", Level.WARNING),
        (tasks(question="Who was it?"), "conflicting_answers", Level.UNFIT),
        (tasks(question="Who was it?"), "leaks", Level.UNFIT),
        (tasks(split=""), "splits", Level.WARNING),
        (tasks(split="train"), "splits", Level.WARNING),
        ([*tasks(), Task("long", "x" * 9_000, ("y",), ("d",))], "too_long", Level.UNFIT),
        (tasks(question="why " * 200), "long", Level.WARNING),
    ],
)
def test_what_is_wrong_with_tasks_is_told(changed: list[Task], name: str, expected: Level) -> None:
    diagnosis = diagnose("set", question_facts(changed))
    assert level(diagnosis, name) is expected
    assert diagnosis.verdict in ({Verdict.UNFIT} if expected is Level.UNFIT else {Verdict.WITH_WARNINGS, Verdict.UNFIT})


def test_one_leak_warns_and_many_are_unfit() -> None:
    found = tasks()
    one = [*found, replace(found[0], id="copy", split="train")]
    assert level(diagnose("set", question_facts(one)), "leaks") is Level.WARNING
    many = [*found, *(replace(task, id=f"copy {task.id}", split="train") for task in found[:20])]
    assert level(diagnose("set", question_facts(many)), "leaks") is Level.UNFIT


def test_other_languages_only_matter_to_an_english_embedder() -> None:
    facts = question_facts(tasks(question="Wer hat die Werft gegründet und wann war das?"))
    assert level(diagnose("set", facts), "language") is Level.OK
    assert level(diagnose("set", facts, english_only=True), "language") is Level.WARNING


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"missing": ("d",)}, "missing_gold", Level.UNFIT),
        ({"recall": 0.4}, "wide_search", Level.WARNING),
        ({"recall": 0.0}, "wide_search", Level.UNFIT),
        ({"in_gold": False}, "answer_in_gold", Level.WARNING),
        ({"in_any": False}, "answer_anywhere", Level.WARNING),
    ],
)
def test_what_is_out_of_reach_is_told(changes: dict[str, object], name: str, expected: Level) -> None:
    found = tasks()
    diagnosis = diagnose("set", question_facts(found), reached(found, **changes))
    assert level(diagnosis, name) is expected


def test_answers_that_stand_nowhere_are_fatal_where_they_are_all_there_is() -> None:
    found = tasks(gold_ids=())
    reach = reached(found, recall=None, in_gold=None, in_any=False)
    assert level(diagnose("set", question_facts(found), reach), "answer_anywhere") is Level.UNFIT
    # A share of a handful is no reason for alarm.
    few = ReachFacts(reach.tasks[:9])
    assert level(diagnose("set", question_facts(found), few), "answer_anywhere") is Level.OK


@pytest.mark.parametrize(
    ("changes", "name", "by_model", "by_builtin"),
    [
        ({"constant": 0.9}, "constant_groups", Level.UNFIT, Level.WARNING),
        ({"constant": 0.6}, "constant_groups", Level.WARNING, Level.WARNING),
        ({"deviation": 0.0}, "reward_spread", Level.UNFIT, Level.WARNING),
        ({"deviation": 0.01}, "reward_spread", Level.WARNING, Level.WARNING),
        ({"solved_by_all": 0.95}, "solved_by_all", Level.UNFIT, Level.WARNING),
        ({"solved_by_none": 0.9}, "solved_by_none", Level.UNFIT, Level.UNFIT),
        ({"solved_by_none": 0.5}, "solved_by_none", Level.WARNING, Level.WARNING),
        ({"faults": 3, "first_fault": "the server is down"}, "faults", Level.UNFIT, Level.UNFIT),
    ],
)
def test_rewards_that_teach_nothing_are_told(
    changes: dict[str, object], name: str, by_model: Level, by_builtin: Level
) -> None:
    spread = replace(GOOD_SPREAD, **changes)  # type: ignore[arg-type]
    facts = question_facts(tasks())
    assert level(diagnose("set", facts, None, spread, policy="hf:model"), name) is by_model
    assert level(diagnose("set", facts, None, spread), name) is by_builtin


def test_the_profile_follows_what_tasks_have() -> None:
    assert rewards_for(tasks()) == "context1"
    assert rewards_for(tasks(gold_ids=())) == "answers"
    assert rewards_for(tasks(answers=(), gold_ids=())) == "context1"
