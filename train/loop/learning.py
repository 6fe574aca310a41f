"""From what users asked and did to training tasks.

A question becomes a task where users have shown which documents held what they wanted (they cited or marked them), or
said what the answer should have been. Openings alone make none: what is opened is mostly what stood on top, and a
policy that learns from its own order learns nothing (Joachims et al., 2005). Whatever is like a question of the gate's
suite is left out, or the gate would measure what was learned by heart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thresher.train.loop.settings import TasksSettings
from thresher.train.production.reading import read
from thresher.train.production.records import ServedSearch, Signal
from thresher.train.tasks.alike import near_duplicates
from thresher.train.tasks.task import Task, task_id

SOURCE = "production"
CONSENTS = frozenset({"setting", "key", "request"})


@dataclass(frozen=True, slots=True)
class Learned:
    """What records teach.

    Attributes:
        tasks: one for each question, the newest last; `new`: how many of them were asked since the last round.
        records: searches that were looked at; `left_out`: searches and questions that teach nothing, by reason.
    """

    tasks: tuple[Task, ...]
    new: int
    records: int
    left_out: dict[str, int]


@dataclass(slots=True)
class _Asked:
    question: str
    gold: dict[str, None]
    answers: tuple[str, ...]
    last: float


def learned(
    records: Iterable[tuple[ServedSearch, Sequence[Signal]]],
    suite: Sequence[Task],
    settings: TasksSettings,
    *,
    collection: str,
    new_since: float,
) -> Learned:
    """The tasks of records, oldest first.

    Args:
        suite: tasks of the gate.
        collection: plain name of the one that is trained on; searches elsewhere teach nothing here.
        new_since: when the last round read, in seconds since 1970.
    """
    left_out: Counter[str] = Counter()
    asked: dict[str, _Asked] = {}
    count = 0
    for search, signals in sorted(records, key=lambda item: item[0].created):
        count += 1
        if search.consent not in CONSENTS:
            left_out["no consent"] += 1
            continue
        if search.collections != (collection,):
            left_out["searched elsewhere"] += 1
            continue
        outcome = read(search, signals)
        if not outcome.gold and not outcome.answers:
            left_out["nothing is known of them"] += 1
            continue
        key = " ".join(search.question.split()).casefold()
        own = asked.pop(key, None) or _Asked(search.question, {}, (), 0.0)  # again the newest
        own.gold.update(dict.fromkeys(outcome.gold))
        own.answers = outcome.answers[-1:] or own.answers  # several people's answers are no aliases of each other
        own.last = search.created
        asked[key] = own
    kept = _unlike(list(asked.values()), suite, settings.near_duplicate)
    if len(kept) < len(asked):
        left_out["like a question of the gate's suite"] += len(asked) - len(kept)
    kept = kept[-settings.maximum :]
    return Learned(
        tuple(_task(each) for each in kept),
        sum(each.last >= new_since for each in kept),
        count,
        dict(left_out),
    )


def _unlike(asked: Sequence[_Asked], suite: Sequence[Task], threshold: float) -> list[_Asked]:
    """Those that are no near-duplicates of a question of the suite."""
    texts = [task.question for task in suite] + [each.question for each in asked]
    size = len(suite)
    alike = {other for one, other, _ in near_duplicates(texts, threshold) if one < size <= other}
    return [each for place, each in enumerate(asked, size) if place not in alike]


def _task(asked: _Asked) -> Task:
    return Task(
        id=task_id(asked.question, asked.answers),
        question=asked.question,
        answers=asked.answers,
        gold_ids=tuple(asked.gold),
        hops=max(1, len(asked.gold)),
        source=SOURCE,
    )
