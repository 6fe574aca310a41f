"""The checks of the doctor: what a number about tasks, their evidence or their rollouts means for training.

Every check is a number, what is thought of it, and what to do next. The bounds are where training was seen to go wrong,
or where simple arithmetic says that it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thresher.train.metrics.retrieval import mean
from thresher.train.tasks.languages import ENGLISH, UNKNOWN
from thresher.train.tasks.questions import QuestionFacts
from thresher.train.tasks.reach import DEPTH, ReachFacts
from thresher.train.tasks.spread import SpreadFacts
from thresher.train.tasks.task import Task

FEWEST_TASKS, FEW_TASKS = 16, 100
"""Two steps of eight groups; below a hundred, a model learns the tasks by heart before it learns to search."""
EXAMPLES = 3
FEWEST_TOLD = 10
"""A share of fewer tasks is no reason for alarm."""
NONE = "none"
"""What is said of a check that found nothing."""


class Level(StrEnum):
    """What is thought of a check."""

    OK = "ok"
    WARNING = "warning"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: stable, for machines; `label`: for people.
        value: the number that decided; None where there is none.
        said: the number in words.
        advice: what to do next; empty where nothing is.
        examples: ids of the first tasks concerned.
    """

    name: str
    label: str
    level: Level
    value: float | None
    said: str
    advice: str = ""
    examples: tuple[str, ...] = ()


def of_questions(facts: QuestionFacts, *, english_only: bool) -> Iterator[Check]:
    """What the tasks' text tells; `english_only`: of the collection's embedder."""
    tasks = facts.tasks
    count = len(tasks)
    yield _judged(
        "tasks",
        "tasks",
        _above(count, FEWEST_TASKS, FEW_TASKS),
        count,
        f"{count:,}, {mean(task.hops for task in tasks) or 0:.2f} hops on average",
        f"add more: below {FEW_TASKS} a model learns them by heart",
    )
    yield _share(
        "without_answers_or_gold",
        "neither answers nor gold",
        facts.without_both,
        count,
        warn=0.3,
        bad=0.9,
        advice="only saying that there is nothing to be found is rewarded on these: keep a few, not most",
    )
    yield _share(
        "without_answers",
        "without answers",
        facts.without_answers,
        count,
        warn=None,
        bad=None,
        advice="",
    )
    yield _share(
        "without_gold",
        "without gold documents",
        facts.without_gold,
        count,
        warn=None,
        bad=None,
        advice="",
    )
    yield _share(
        "long_answers",
        "answers too long to stand in a passage",
        facts.long_answers,
        count,
        warn=0.2,
        # With gold documents the rest of the reward still tells rollouts apart.
        bad=0.5 if len(facts.without_gold) > count / 2 else None,
        advice="no passage holds them word by word: give the few words that matter, or rely on gold documents",
    )
    yield _share(
        "repeated_questions",
        "repeated questions",
        facts.repeated,
        count,
        warn=0.0,
        bad=0.5,
        advice="leave repetitions out, unless a conversation before them makes them different questions",
    )
    alike = {task.id: task for pair in facts.near_duplicates for task in pair}
    yield _share(
        "near_duplicates",
        "near-duplicates of others",
        tuple(alike.values()),
        count,
        warn=0.3,
        bad=None,
        advice="there are fewer different tasks than it seems: each is trained on several times",
    )
    yield _share(
        "conflicting_answers",
        "repeated with other answers",
        facts.conflicting,
        count,
        warn=0.0,
        bad=0.2,
        advice="one question with two answers punishes half of what is right: make the question say which is meant",
    )
    yield from _of_splits(facts)
    yield _share(
        "yes_no",
        "answered by yes or no",
        facts.yes_no,
        count,
        warn=0.3,
        bad=None,
        advice="a guess is right half of the time: reward evidence (gold documents), not the answer alone",
    )
    yield _share(
        "either_or",
        "questions that name their answer",
        facts.either_or,
        count,
        warn=0.3,
        bad=None,
        advice="a guess among those named often wins: reward evidence (gold documents), not the answer alone",
    )
    yield _language(facts, english_only)
    yield _share(
        "too_long",
        "questions that the engine refuses",
        facts.too_long,
        count,
        warn=None,
        bad=0.0,
        advice="shorten or remove them: training would stop at the first of them",
    )
    yield _share(
        "long",
        "very long questions",
        facts.long,
        count,
        warn=0.1,
        bad=None,
        advice="an embedder reads only their beginning: put the question first, and what it is about after it",
    )


def _of_splits(facts: QuestionFacts) -> Iterator[Check]:
    named = [name for name in facts.splits if name]
    held_out = sum(count for name, count in facts.splits.items() if name and name != "train")
    said = ", ".join(f"{count:,} {name or 'in none'}" for name, count in facts.splits.items()) if named else "none"
    missing = "train" not in named or held_out == 0
    yield _judged(
        "splits",
        "splits",
        Level.WARNING if missing else Level.OK,
        len(named),
        said,
        "nothing would be held out to see whether training helped: `thresher train split`",
    )
    leaking = {task.id for leak in facts.leaks for task in (leak.first, leak.second) if task.split != "train"}
    share = len(leaking) / held_out if held_out else 0.0
    level = Level.UNFIT if share > 0.05 else Level.WARNING if leaking else Level.OK
    pairs = [f"{leak.first.id} ({leak.first.split}) = {leak.second.id} ({leak.second.split})" for leak in facts.leaks]
    yield _judged(
        "leaks",
        "leaks between splits",
        level,
        share,
        f"{len(leaking):,} of {held_out:,} held-out tasks" if held_out else "nothing is held out",
        "what is tested was trained on: split anew with `thresher train split --overwrite`",
        tuple(pairs[:EXAMPLES]),
    )


def _language(facts: QuestionFacts, english_only: bool) -> Check:
    total = sum(facts.languages.values())
    foreign = {name: n for name, n in facts.languages.items() if name not in (ENGLISH, UNKNOWN)}
    share = sum(foreign.values()) / total if total else 0.0
    said = ", ".join(f"{n / total:.0%} {name}" for name, n in list(facts.languages.items())[:3])
    alarming = english_only and share > 0.2
    return _judged(
        "language",
        "language of the questions",
        Level.WARNING if alarming else Level.OK,
        share,
        said,
        "the collection's embedder knows English only: ingest with one for these languages (--embedder st:NAME)",
    )


def of_reach(reach: ReachFacts) -> Iterator[Check]:
    """What the index tells."""
    missing = reach.missing_gold
    if reach.with_gold:
        share = len(missing) / reach.with_gold
        names = [f"{each.task.id}: {each.missing[0]}" for each in missing[:EXAMPLES]]
        yield _judged(
            "missing_gold",
            "gold documents not in the index",
            Level.UNFIT if share > 0.2 else Level.WARNING if missing else Level.OK,
            share,
            f"some of {len(missing):,} of {reach.with_gold:,} tasks" if missing else NONE,
            "gold ids must name documents as the collection does (`thresher ls -c NAME`): correct the ids, or "
            "ingest what is missing",
            tuple(names),
        )
    if (recall := reach.recall) is not None:
        yield _judged(
            "wide_search",
            f"gold among {DEPTH} passages of one search",
            _above(recall, 0.2, 0.5),
            recall,
            f"{recall:.0%}" + (f"; none of it for {len(reach.unfound):,} tasks" if reach.unfound else ""),
            "the index hardly finds the evidence, so rollouts will not either: try another embedder or chunker first",
            tuple(each.task.id for each in reach.unfound[:EXAMPLES]),
        )
    # Where gold documents are known, finding them is rewarded, whatever became of the answer.
    mostly_gold = reach.with_gold >= len(reach.tasks) / 2
    if (in_gold := reach.in_gold) is not None:
        told = sum(each.in_gold is not None for each in reach.tasks)
        yield _judged(
            "answer_in_gold",
            "answer stands in a gold document",
            _told(told, _above(in_gold, 0.0 if mostly_gold else 0.2, 0.6)),
            in_gold,
            f"{in_gold:.0%} of {told:,}",
            "finding the evidence hardly counts as finding the answer: add aliases as they are written there, or lower "
            "answer_found in the reward profile",
            tuple(each.task.id for each in reach.tasks if each.in_gold is False)[:EXAMPLES],
        )
    if (in_any := reach.in_any) is not None:
        told = sum(each.in_any is not None for each in reach.tasks)
        yield _judged(
            "answer_anywhere",
            "answer stands in any passage",
            _told(told, _above(in_any, 0.0 if mostly_gold else 0.5, 0.8)),
            in_any,
            f"{in_any:.0%} of {told:,}",
            "no search finds the other answers: add the documents, or aliases as they are written there, or leave "
            "those tasks out",
            tuple(each.task.id for each in reach.nowhere[:EXAMPLES]),
        )


def of_spread(spread: SpreadFacts, *, builtin: bool) -> Iterator[Check]:
    """What rollouts tell; those of the builtin policy differ little, and only warn."""
    tried = spread.rollouts + spread.faults
    faulty = spread.faults / tried if tried else 0.0
    yield _judged(
        "faults",
        "rollouts that could not be run",
        Level.UNFIT if faulty > 0.2 else Level.WARNING if spread.faults else Level.OK,
        faulty,
        f"{spread.faults:,} of {tried:,}" if spread.faults else NONE,
        f"see to what serves the policy: {spread.first_fault}",
    )
    if spread.rollouts:
        failed = spread.failed / spread.rollouts
        yield _judged(
            "failed",
            "rollouts that ended in an error",
            Level.UNFIT if failed > 0.2 else Level.WARNING if spread.failed else Level.OK,
            failed,
            f"{spread.failed:,} of {spread.rollouts:,}" if spread.failed else NONE,
            f"mend the policy first, or rewards are those of its errors: {spread.first_failure}",
        )
    if spread.constant is None or spread.solved_by_all is None or spread.solved_by_none is None:
        return
    scored = [group for group in spread.groups if len(group.scored) > 1]
    constant = [group.task for group in scored if group.constant]
    model = "ask again with the model that you will train (--policy hf:PATH, or tokens:MODEL with --model-url)"
    yield _judged(
        "constant_groups",
        "tasks whose rollouts all earn the same",
        _capped(_below(spread.constant, 0.5, 0.8), builtin),
        spread.constant,
        f"{len(constant):,} of {len(scored):,} ({spread.constant:.0%})",
        f"the builtin policy varies little by itself: {model}"
        if builtin
        else "nothing is learned from these: take harder tasks where all solve them, easier ones or `thresher train "
        "sft` first where none does, or more rollouts a task",
        _ids(constant),
    )
    deviation = spread.deviation or 0.0
    yield _judged(
        "reward_spread",
        "spread of rewards inside a task",
        _capped(_above(deviation, 0.005, 0.02), builtin),
        deviation,
        f"{deviation:.3f} around a mean of {spread.reward or 0.0:.2f}",
        f"as above: {model}" if builtin else "rollouts hardly differ: raise the temperature, or allow more turns",
    )
    yield _judged(
        "solved_by_all",
        "tasks that every rollout solves",
        _capped(_below(spread.solved_by_all, 0.6, 0.85), builtin),
        spread.solved_by_all,
        f"{spread.solved_by_all:.0%}",
        "too easy for this policy: harder tasks (more hops, a larger corpus) teach more"
        + (", though a weaker model may still learn from these" if builtin else ""),
    )
    yield _judged(
        "solved_by_none",
        "tasks on which no rollout finds anything",
        _below(spread.solved_by_none, 0.4, 0.8),
        spread.solved_by_none,
        f"{spread.solved_by_none:.0%}",
        "too hard for this policy, or the evidence is not there: begin with fewer hops, or with `thresher train sft`",
    )


def _judged(
    name: str,
    label: str,
    level: Level,
    value: float | None,
    said: str,
    advice: str,
    examples: tuple[str, ...] = (),
) -> Check:
    """A check whose advice is only for who needs it."""
    return Check(name, label, level, value, said, "" if level is Level.OK else advice, examples)


def _share(
    name: str, label: str, found: Sequence[Task], count: int, *, warn: float | None, bad: float | None, advice: str
) -> Check:
    """A check of a share of all tasks: above `warn` or `bad` it is one; None never is."""
    share = len(found) / count if count else 0.0
    level = Level.OK
    if bad is not None and share > bad:
        level = Level.UNFIT
    elif warn is not None and share > warn:
        level = Level.WARNING
    said = f"{len(found):,} ({share:.0%})" if found else NONE
    return _judged(name, label, level, share, said, advice, _ids(found))


def _capped(level: Level, only_warn: bool) -> Level:
    return Level.WARNING if only_warn and level is Level.UNFIT else level


def _told(count: int, level: Level) -> Level:
    return Level.OK if count < FEWEST_TOLD else level


def _ids(tasks: Iterable[Task]) -> tuple[str, ...]:
    return tuple(task.id for task in tasks)[:EXAMPLES]


def _above(value: float, bad: float, good: float) -> Level:
    return Level.UNFIT if value < bad else Level.WARNING if value < good else Level.OK


def _below(value: float, good: float, bad: float) -> Level:
    return Level.UNFIT if value > bad else Level.WARNING if value > good else Level.OK
