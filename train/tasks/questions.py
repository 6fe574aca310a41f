"""What can be said of tasks from their text alone: what they lack, what repeats, what leaks, what can be guessed."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thresher.engine.requests import MAX_QUERY_CHARACTERS
from thresher.train.metrics.answers import normalise
from thresher.train.tasks.alike import NEAR_DUPLICATE, near_duplicates, same_answer_and_gold
from thresher.train.tasks.languages import language_of
from thresher.train.tasks.task import Task

LONG_QUESTION = 150
"""Words from which on a question is long: the packaged embedder reads about as many, and no more."""
LONG_ANSWER = 15
"""Words from which on no passage can be expected to hold an answer word by word."""

_YES_NO = frozenset({"yes", "no", "true", "false"})
_EITHER = re.compile(r"\b(or|oder|ou|o)\b|,", re.IGNORECASE)


class LeakKind(StrEnum):
    """Why two tasks of different splits are one."""

    NEAR_DUPLICATE = "near-duplicate questions"
    SAME_ANSWER_AND_GOLD = "same answers and gold documents"


@dataclass(frozen=True, slots=True)
class SplitLeak:
    """Two tasks of different splits that are too much alike."""

    kind: LeakKind
    first: Task
    second: Task


@dataclass(frozen=True, slots=True)
class QuestionFacts:
    """Facts of a set of tasks. Tuples of tasks are in the order of the set.

    Attributes:
        repeated: tasks whose question was asked before, in the same words.
        conflicting: those of them whose answers have nothing in common with those given before.
        near_duplicates: pairs of tasks whose questions are near-duplicates, repetitions among them.
        leaks: pairs of tasks of different splits that are alike, in the whole set that the tasks are a part of.
        splits: all tasks of that set by split; those without one under the empty name.
        yes_no: all answers are yes, no, true or false.
        either_or: the question names the answer as one of several.
        too_long: questions that the engine refuses.
        long: questions longer than `LONG_QUESTION` words; `long_answers`: tasks without any shorter answer.
        languages: tasks by the language of their question, as far as its function words or its script tell.
    """

    tasks: tuple[Task, ...]
    without_answers: tuple[Task, ...]
    without_gold: tuple[Task, ...]
    without_both: tuple[Task, ...]
    repeated: tuple[Task, ...]
    conflicting: tuple[Task, ...]
    near_duplicates: tuple[tuple[Task, Task], ...]
    leaks: tuple[SplitLeak, ...]
    yes_no: tuple[Task, ...]
    either_or: tuple[Task, ...]
    too_long: tuple[Task, ...]
    long: tuple[Task, ...]
    long_answers: tuple[Task, ...]
    languages: Mapping[str, int]
    splits: Mapping[str, int]


def question_facts(
    tasks: Sequence[Task], *, among: Sequence[Task] | None = None, threshold: float = NEAR_DUPLICATE
) -> QuestionFacts:
    """Look at tasks; nothing is searched.

    Args:
        among: the set that they are a part of, in which leaks between splits are looked for; None: they are all of it.
    """
    repeated, conflicting = _repetitions(tasks)
    alike = near_duplicates([task.question for task in tasks], threshold)
    return QuestionFacts(
        tasks=tuple(tasks),
        without_answers=tuple(task for task in tasks if not task.answers),
        without_gold=tuple(task for task in tasks if not task.gold_ids),
        without_both=tuple(task for task in tasks if not task.answers and not task.gold_ids),
        repeated=repeated,
        conflicting=conflicting,
        near_duplicates=tuple((tasks[i], tasks[j]) for i, j, _ in alike),
        leaks=split_leaks(tasks if among is None else among, threshold=threshold),
        splits=dict(sorted(Counter(task.split for task in (tasks if among is None else among)).items())),
        yes_no=tuple(task for task in tasks if is_yes_no(task)),
        either_or=tuple(task for task in tasks if is_either_or(task)),
        too_long=tuple(task for task in tasks if len(task.question) > MAX_QUERY_CHARACTERS),
        long=tuple(task for task in tasks if len(task.question.split()) > LONG_QUESTION),
        long_answers=tuple(task for task in tasks if has_long_answers(task)),
        languages=dict(Counter(language_of(task.question) for task in tasks).most_common()),
    )


def is_yes_no(task: Task) -> bool:
    """Whether a coin would be right half of the time."""
    return bool(task.answers) and all(normalise(answer) in _YES_NO for answer in task.answers)


def is_either_or(task: Task) -> bool:
    """Whether the question itself names the answer, as one of several ("Who was born first, Ada or Bo?")."""
    question = f" {normalise(task.question)} "
    named = any(f" {plain} " in question for answer in task.answers if (plain := normalise(answer)))
    return named and not is_yes_no(task) and _EITHER.search(task.question) is not None


def has_long_answers(task: Task) -> bool:
    """Whether all answers are so long that no passage can be expected to hold one word by word."""
    return bool(task.answers) and all(len(answer.split()) > LONG_ANSWER for answer in task.answers)


def _repetitions(tasks: Sequence[Task]) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """(tasks whose question was asked before, those of them whose answers differ)."""
    before: dict[str, list[Task]] = defaultdict(list)
    repeated, conflicting = [], []
    for task in tasks:
        key = " ".join(unicodedata.normalize("NFKC", task.question).casefold().split())
        if before[key]:
            repeated.append(task)
            known = {normalise(answer) for other in before[key] for answer in other.answers}
            if task.answers and known and known.isdisjoint(map(normalise, task.answers)):
                conflicting.append(task)
        before[key].append(task)
    return tuple(repeated), tuple(conflicting)


def split_leaks(tasks: Sequence[Task], *, threshold: float = NEAR_DUPLICATE) -> tuple[SplitLeak, ...]:
    """Pairs of tasks of different splits that are too much alike."""
    alike = [(i, j) for i, j, _ in near_duplicates([task.question for task in tasks], threshold)]
    found: dict[tuple[int, int], SplitLeak] = {}
    for kind, pairs in ((LeakKind.NEAR_DUPLICATE, alike), (LeakKind.SAME_ANSWER_AND_GOLD, _same_pairs(tasks))):
        for one, two in pairs:
            first, second = tasks[one], tasks[two]
            if first.split and second.split and first.split != second.split:
                found.setdefault((one, two), SplitLeak(kind, first, second))
    return tuple(found.values())


def _same_pairs(tasks: Sequence[Task]) -> Iterator[tuple[int, int]]:
    """Each task of a group that has the same answers and gold, with the first one of every split before it."""
    for group in same_answer_and_gold(tasks):
        first_of: dict[str, int] = {}
        for place in group:
            yield from ((first, place) for first in first_of.values())
            first_of.setdefault(tasks[place].split, place)
