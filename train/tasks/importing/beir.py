"""BEIR: a folder with `corpus.jsonl`, `queries.jsonl` and judgements in `qrels/*.tsv` (Thakur et al., 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher.train.tasks.importing.reading import Record, answers_of, json_records, opened
from thresher.train.tasks.importing.sink import Sink
from thresher.train.tasks.task import CORPUS, QUERIES, Task, TaskError

BEIR = "beir"
QRELS = "qrels"

NOT_JUDGED = "queries without a relevant document"
IN_TWO_SPLITS = "queries of one split that are judged in another one too"
MISSING_GOLD = "judgements of documents that the corpus lacks"
WITHOUT_TEXT = "queries without text"

_LAST_FIRST = ("test", "dev", "validation", "train")
"""A query that is judged in two splits belongs to the first of these: what is tested must not be trained on."""


@dataclass(slots=True)
class _Judged:
    """What the judgements say of one query: its split, and (document, where it is said) of each relevant document."""

    split: str
    gold: dict[str, str] = field(default_factory=dict)


def is_beir(folder: Path) -> bool:
    """Whether a folder is laid out so."""
    return (folder / CORPUS).is_file() and (folder / QUERIES).is_file() and (folder / QRELS).is_dir()


def import_beir(folder: Path, sink: Sink, split: str, *, min_score: int = 1) -> None:
    """Read a BEIR folder. Relevant are documents with a score of at least `min_score`.

    Splits are the names of the files in `qrels`; with `split`, only that file is read.

    Raises:
        TaskError: a file is missing or not as published, or a judgement names a query that is not there.
    """
    if not is_beir(folder):
        raise TaskError(f"{folder} is not laid out as BEIR: it needs {CORPUS}, {QUERIES} and a folder {QRELS}/ of .tsv")
    judged = _judgements(folder / QRELS, split, min_score, sink)
    for record in json_records(folder / CORPUS):
        metadata = record.fields.get("metadata")
        sink.document(
            record.text("_id" if "_id" in record else "id"),
            record.text("title", required=False),
            record.text("text", required=False),
            metadata if isinstance(metadata, dict) else {},
            record.where,
        )
    queries = {query: record for record in json_records(folder / QUERIES) for query in [_query_id(record)]}
    if unknown := next((query for query in judged if query not in queries), None):
        where = next(iter(judged[unknown].gold.values()), str(folder / QRELS))
        raise TaskError(f"{where}: query {unknown!r} is not in {folder / QUERIES}")
    name = folder.resolve().name
    for query, record in queries.items():
        if sink.full:
            return
        found = judged.get(query)
        if found is None or not found.gold:
            sink.leave_out(NOT_JUDGED, record.where)
            continue
        gold = []
        for document, where in found.gold.items():
            if sink.has_document(document):
                gold.append(document)
            else:
                sink.leave_out(MISSING_GOLD, where)
        question = record.text("text", required=False).strip()
        if not question or not gold:
            sink.leave_out(NOT_JUDGED if question else WITHOUT_TEXT, record.where)
            continue
        sink.task(Task(query, question, _answers(record), tuple(gold), 1, "ir", found.split, name), record.where)


def _judgements(folder: Path, split: str, min_score: int, sink: Sink) -> dict[str, _Judged]:
    files = {path.stem: path for path in sorted(folder.glob("*.tsv"))}
    if not files:
        raise TaskError(f"{folder} holds no .tsv file of judgements")
    if split:
        if split not in files:
            raise TaskError(f"{folder} has no split {split!r}: it has {', '.join(files)}")
        files = {split: files[split]}
    order = sorted(files, key=lambda name: (_LAST_FIRST.index(name) if name in _LAST_FIRST else -1, name))
    judged: dict[str, _Judged] = {}
    twice: set[str] = set()
    for name in order:
        for query, document, score, where in _rows(files[name]):
            known = judged.setdefault(query, _Judged(name))
            if known.split != name:
                if (key := f"{name} {query}") not in twice:
                    twice.add(key)
                    sink.leave_out(IN_TWO_SPLITS, where)
            elif score >= min_score:
                known.gold.setdefault(document, where)
    return judged


def _rows(path: Path) -> Iterator[tuple[str, str, float, str]]:
    """(query, document, score, where) of each judgement; the first line may be the header."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            cells = line.rstrip("\r\n").split("\t")
            if not line.strip() or (number == 1 and cells[0] in ("query-id", "query_id", "qid")):
                continue
            if len(cells) == 4:  # as TREC writes it: query, iteration, document, score
                cells = [cells[0], cells[2], cells[3]]
            if len(cells) != 3:
                raise TaskError(f"{where}: a judgement has 3 columns (query, document, score), got {len(cells)}")
            try:
                score = float(cells[2])
            except ValueError:
                raise TaskError(f"{where}: the score must be a number, got {cells[2]!r}") from None
            yield cells[0], cells[1], score, where


def _query_id(record: Record) -> str:
    return record.text("_id" if "_id" in record else "id")


def _answers(record: Record) -> tuple[str, ...]:
    """Answers, which a few of the sets carry in a query's metadata."""
    metadata: Any = record.fields.get("metadata")
    if not isinstance(metadata, dict):
        return ()
    return answers_of(metadata.get("answer", metadata.get("answers")), record.where)
