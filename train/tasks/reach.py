"""Whether a collection can answer tasks: are the gold documents there, do they hold the answers, are they found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.corpus.errors import CorpusError, DocumentNotFound
from thresher.engine.requests import MAX_QUERY_CHARACTERS
from thresher.train.metrics.answers import answer_found
from thresher.train.metrics.retrieval import mean
from thresher.train.tasks.questions import has_long_answers, is_yes_no
from thresher.train.tasks.task import Task

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection

DEPTH = 100
"""How deep the wide search looks: no search of an agent with a few queries sees much more."""
ENGLISH_EMBEDDERS = ("minilm", "wordllama")
_GREPPED = 8  # aliases of an answer that are looked for
_GREP_HITS = 20
_GREP_DEADLINE_S = 2.0
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Reach:
    """What a collection holds of one task.

    Attributes:
        missing: gold ids that name no document of it.
        recall: share of the gold documents among the first `DEPTH` passages for the question as it stands; None for
            tasks without gold.
        in_gold: one of the answers stands in a gold document; None where that says nothing: no gold, no answers, yes
            or no, answers too long to be there word by word.
        in_any: one of them stands in any passage; None as above, or where looking took too long.
    """

    task: Task
    missing: tuple[str, ...]
    recall: float | None
    in_gold: bool | None
    in_any: bool | None


@dataclass(frozen=True, slots=True)
class ReachFacts:
    """Reach of all tasks that were looked at."""

    tasks: tuple[Reach, ...]

    @property
    def missing_gold(self) -> tuple[Reach, ...]:
        """Tasks with gold of which some is not there."""
        return tuple(reach for reach in self.tasks if reach.missing)

    @property
    def with_gold(self) -> int:
        """Tasks with gold ids."""
        return sum(bool(reach.task.gold_ids) for reach in self.tasks)

    @property
    def recall(self) -> float | None:
        """Mean recall of the wide search."""
        return mean(reach.recall for reach in self.tasks if reach.recall is not None)

    @property
    def unfound(self) -> tuple[Reach, ...]:
        """Tasks with gold of which the wide search finds none."""
        return tuple(reach for reach in self.tasks if reach.recall == 0)

    @property
    def in_gold(self) -> float | None:
        """Share of tasks whose answer stands in a gold document."""
        return mean(reach.in_gold for reach in self.tasks if reach.in_gold is not None)

    @property
    def in_any(self) -> float | None:
        """Share of tasks whose answer stands in any passage."""
        return mean(reach.in_any for reach in self.tasks if reach.in_any is not None)

    @property
    def nowhere(self) -> tuple[Reach, ...]:
        """Tasks whose answer stands in no passage."""
        return tuple(reach for reach in self.tasks if reach.in_any is False)


def reach_facts(
    collection: Collection, tasks: Sequence[Task], *, on_task: Callable[[int, int, Task], None] | None = None
) -> ReachFacts:
    """Look for what the tasks need: one search a task, and a grep where no gold document holds the answer."""
    found = []
    for number, task in enumerate(tasks):
        if on_task is not None:
            on_task(number, len(tasks), task)
        found.append(_reach(collection, task))
    return ReachFacts(tuple(found))


def knows_only_english(collection: Collection) -> bool:
    """Whether the collection's embedder is one of the packaged ones, which were made for English alone."""
    return collection.manifest.embedder.spec in ENGLISH_EMBEDDERS


def gold_documents(collection: Collection, gold_ids: Iterable[str]) -> dict[str, frozenset[str]]:
    """The documents that each gold id names: itself, or all those of the file of that name; empty where none is."""
    gold = frozenset(gold_ids)
    own = collection.document_owners(gold).keys() if gold else frozenset[str]()
    return {
        name: frozenset({name}) if name in own else frozenset(info.id for info in collection.documents(source_id=name))
        for name in gold
    }


def _reach(collection: Collection, task: Task) -> Reach:
    gold = gold_documents(collection, task.gold_ids)
    missing = tuple(name for name in task.gold_ids if not gold[name])
    recall = None
    if gold and len(task.question) <= MAX_QUERY_CHARACTERS:
        hits = collection.search(task.question, limit=DEPTH, candidates=DEPTH)
        seen = {hit.chunk.document_id for hit in hits}
        recall = sum(not documents.isdisjoint(seen) for documents in gold.values()) / len(gold)
    if not task.answers or is_yes_no(task) or has_long_answers(task):
        return Reach(task, missing, recall, None, None)
    in_gold = None
    if gold:
        texts = [text for documents in gold.values() for name in documents for text in _texts(collection, name)]
        in_gold = answer_found(task.answers, texts)
    return Reach(task, missing, recall, in_gold, True if in_gold else _anywhere(collection, task.answers))


def _texts(collection: Collection, document_id: str) -> list[str]:
    """The title and the text of a document: both are shown with every passage."""
    try:
        info = collection.document(document_id)
        return [*([info.title] if info is not None and info.title else []), collection.text(document_id)]
    except DocumentNotFound:  # gone since
        return []


def _anywhere(collection: Collection, answers: Sequence[str]) -> bool | None:
    """Whether an answer stands in any passage, whatever stands between its words; None if looking took too long."""
    told = True
    for answer in answers[:_GREPPED]:
        words = _WORD.findall(answer)
        if not words:
            continue
        try:
            hits = collection.grep(
                r"\W+".join(map(re.escape, words)),
                limit=_GREP_HITS,
                deadline_s=_GREP_DEADLINE_S,
                ignore_case=True,
            )
        except CorpusError:  # too slow, or longer than a pattern may be
            told = False
            continue
        if answer_found(answers, (hit.chunk.text for hit in hits)):
            return True
    return False if told else None
