"""The multi-hop sets whose questions come with their paragraphs: HotpotQA, 2WikiMultihopQA and MuSiQue.

The paragraphs of all questions become one corpus, as in the pooled settings of the papers that search such sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from thresher.train.tasks.importing.reading import Record, answers_of, json_records
from thresher.train.tasks.importing.sink import Sink, text_of
from thresher.train.tasks.task import Step, Task, TaskError

HOTPOTQA, MUSIQUE, TWO_WIKI = "hotpotqa", "musique", "2wikimultihop"

NO_ANSWER = "questions without an answer"
NOT_ANSWERABLE = "questions marked as not answerable"
NO_EVIDENCE = "questions whose evidence is not among their paragraphs"
EMPTY_PARAGRAPHS = "paragraphs without text"


@dataclass(frozen=True, slots=True)
class _Paragraph:
    title: str
    text: str
    supports: bool
    index: int | None = None


def import_hotpotqa(path: Path, sink: Sink, split: str) -> None:
    """Read HotpotQA's own JSON, or its rows as the `datasets` package gives them (Yang et al., 2018).

    Raises:
        TaskError: a record is not as published.
    """
    for record in _wanted(path, sink):
        _put_titled(sink, record, HOTPOTQA, split, _answers(record))


def import_2wiki(path: Path, sink: Sink, split: str) -> None:
    """Read 2WikiMultihopQA's own JSON (Ho et al., 2020); with `id_aliases.json` beside it, other names of answers too.

    Raises:
        TaskError: a record is not as published.
    """
    aliases = _aliases(path.with_name("id_aliases.json"))
    for record in _wanted(path, sink):
        answers = _answers(record)
        if answers and "answer_id" in record:
            answers = tuple(dict.fromkeys((*answers, *aliases.get(record.text("answer_id"), ()))))
        _put_titled(sink, record, TWO_WIKI, split, answers)


def import_musique(path: Path, sink: Sink, split: str) -> None:
    """Read MuSiQue's own JSON lines, `ans` and `full` alike (Trivedi et al., 2022).

    The questions of `full` that are marked as not answerable are left out: what their own paragraphs lack is in the
    pool of all paragraphs, so there they are answerable after all.

    Raises:
        TaskError: a record is not as published.
    """
    for record in _wanted(path, sink):
        if record.fields.get("answerable", True) is False:
            sink.leave_out(NOT_ANSWERABLE, record.where)
            continue
        paragraphs = [
            _Paragraph(
                item.text("title", required=False),
                item.text("paragraph_text"),
                _flag(item, "is_supporting"),
                _index(item, "idx"),
            )
            for item in record.records("paragraphs")
        ]
        answers = answers_of(
            [*answers_of(record.fields.get("answer"), record.where), *record.items("answer_aliases", required=False)],
            record.where,
        )
        steps = record.records("question_decomposition", required=False)
        _put(sink, record, MUSIQUE, split, answers, paragraphs, kind=_musique_kind(record), steps=steps)


Importer = Callable[[Path, Sink, str], None]
IMPORTERS: Mapping[str, Importer] = {
    HOTPOTQA: import_hotpotqa,
    MUSIQUE: import_musique,
    TWO_WIKI: import_2wiki,
}


def kind_of_record(fields: Mapping[str, Any]) -> str | None:
    """Which of these sets a record looks like; None if like none."""
    if "paragraphs" in fields and "question" in fields:
        return MUSIQUE
    if "context" in fields and "question" in fields:
        two_wiki = "evidences" in fields or "evidences_id" in fields
        return TWO_WIKI if two_wiki else HOTPOTQA
    return None


def _wanted(path: Path, sink: Sink) -> Iterator[Record]:
    """The records of a file, until there are tasks enough."""
    return takewhile(lambda _: not sink.full, json_records(path))


def _put(
    sink: Sink,
    record: Record,
    source: str,
    split: str,
    answers: tuple[str, ...],
    paragraphs: list[_Paragraph],
    *,
    kind: str,
    complete: bool = True,
    steps: Sequence[Record] = (),
) -> None:
    """Put a question with its paragraphs, or count why it is left out, paragraphs and all.

    `steps`: what MuSiQue parts it into, each with the index of the paragraph that answers it.
    """
    own_id = record.text("_id" if "_id" in record else "id")
    question = record.text("question").strip()
    if not answers:
        sink.leave_out(NO_ANSWER, record.where)
        return
    supporting = [paragraph for paragraph in paragraphs if paragraph.supports]
    if not complete or not supporting or not all(paragraph.text.strip() for paragraph in supporting):
        sink.leave_out(NO_EVIDENCE, record.where)
        return
    gold: list[str] = []
    at: dict[int | None, str] = {}
    for paragraph in paragraphs:
        document = sink.paragraph(paragraph.title, paragraph.text)
        if document is None:
            sink.leave_out(EMPTY_PARAGRAPHS, record.where)
        elif paragraph.supports:
            gold.append(document)
            at[paragraph.index] = document
    at[None] = ""  # a step of which nobody said where its answer stands
    gold_ids = tuple(dict.fromkeys(gold))
    decomposition = tuple(
        Step(
            step.text("question"),
            step.text("answer", required=False),
            at.get(_index(step, "paragraph_support_idx"), ""),
        )
        for step in steps
    )
    task = Task(
        own_id,
        question,
        answers,
        gold_ids,
        len(steps) or len(gold_ids),
        kind,
        split,
        source,
        decomposition=decomposition,
    )
    sink.task(task, record.where)


def _answers(record: Record) -> tuple[str, ...]:
    return answers_of(record.fields.get("answer"), record.where)


def _put_titled(sink: Sink, record: Record, source: str, split: str, answers: tuple[str, ...]) -> None:
    """Put a question whose context is a list of (title, sentences), and whose supporting facts name titles.

    It is complete only if each of them is there: half of the evidence would punish who finds the other half.
    """
    facts = _pairs(record, "supporting_facts", "title", "sent_id", required=False)
    supporting = {str(title) for title, _ in facts}
    paragraphs = []
    for title, sentences in _pairs(record, "context", "title", "sentences"):
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise record.error(f"context: the sentences of {title!r} must be a list of texts")
        paragraphs.append(_Paragraph(str(title), text_of(sentences), str(title) in supporting))
    complete = supporting <= {paragraph.title for paragraph in paragraphs}
    kind = record.text("type", required=False)
    _put(sink, record, source, split, answers, paragraphs, kind=kind, complete=complete)


def _pairs(record: Record, key: str, first: str, second: str, *, required: bool = True) -> list[tuple[Any, Any]]:
    """Pairs, given as a list of them or as an object of two lists."""
    value = record.fields.get(key)
    if isinstance(value, dict):
        one, other = value.get(first), value.get(second)
        if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
            raise record.error(f"{key} must hold two lists of one length, {first} and {second}")
        return list(zip(one, other, strict=True))
    pairs = []
    for item in record.items(key, required=required):
        if not isinstance(item, list) or len(item) != 2:
            raise record.error(f"{key} must be a list of pairs ({first}, {second})")
        pairs.append((item[0], item[1]))
    return pairs


def _flag(record: Record, key: str) -> bool:
    value = record.fields.get(key, False)
    if not isinstance(value, bool):
        raise record.error(f"{key} must be true or false, got {value!r}")
    return value


def _index(record: Record, key: str) -> int | None:
    value = record.fields.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise record.error(f"{key} must be a whole number, got {value!r}")
    return value


def _musique_kind(record: Record) -> str:
    """`2hop`, `3hop1`, …: the first part of the id."""
    kind, mark, _ = record.text("id").partition("__")
    return kind if mark else ""


def _aliases(path: Path) -> dict[str, tuple[str, ...]]:
    """Other names by entity; published as JSON lines."""
    if not path.is_file():
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for record in json_records(path):
        names = (*record.items("aliases", required=False), *record.items("demonyms", required=False))
        try:
            found[record.text("Q_id")] = answers_of(list(names), record.where)
        except TaskError as error:
            raise TaskError(f"{error} (this file is read because it lies beside the questions)") from error
    return found
