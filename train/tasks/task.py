"""Tasks: questions with the answers and gold documents that a search is scored against.

`tasks.jsonl` holds one JSON object a line: `question`, and of these what is known: `id`, `answers`, `gold_ids`, `hops`,
`type`, `source`, `split`, `excerpts`, `decomposition`. An evaluation set is a folder with such a file, called
`queries.jsonl`, beside the documents that gold ids name: `corpus.jsonl`, or a folder `docs/`.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thresher.train.errors import TrainError
from thresher.train.lines import write_lines
from thresher.train.metrics.words import words

QUERIES = "queries.jsonl"
CORPUS = "corpus.jsonl"
DOCUMENTS = "docs"

WITHOUT_ANSWER = frozenset({"null_query", "unanswerable", "underspecified"})
"""Types, in lower case, by which sets (MultiHop-RAG, MTRAG, our own) mark what their documents cannot answer."""
NO_ANSWER = frozenset(
    {
        "cannot be answered",
        "i do not know",
        "i do not have that information",
        "insufficient information",
        "no answer",
        "not answerable",
        "not enough information",
        "unanswerable",
    }
)
"""Answers that say there is none, as `words` of them; longer ones are told by the task's type only."""


class TaskError(TrainError):
    """A task file cannot be read. The message names the file, the line and what is wrong with it."""

    code = "invalid_tasks"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of a document that holds evidence: `text` are the characters `[start, end)` of the document's file."""

    document: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a question; `gold_id` is the document that answers it, "" where nobody said."""

    question: str
    answer: str = ""
    gold_id: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One question.

    Attributes:
        answers: accepted answers, aliases of each other; empty where the set has none.
        gold_ids: documents that hold the evidence; empty for questions that the corpus cannot answer.
        hops: how many documents must be combined.
        type: the set's own word for the kind of question.
        split: `dev`, `train`, …; empty where the set is not split.
        source: where the question comes from: a set's name, a file; empty where nobody said.
        excerpts: the passages that hold the evidence, where the set marks them to the character.
        decomposition: the steps of a question of several hops, in order, where the set knows them.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    hops: int = 1
    type: str = ""
    split: str = ""
    source: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    decomposition: tuple[Step, ...] = ()

    @property
    def answerable(self) -> bool:
        """Whether the corpus holds the evidence."""
        return bool(self.gold_ids)

    @property
    def to_be_found(self) -> tuple[str, ...]:
        """The answers, if they are ones: a task without gold may write out, as its answer, that there is none.

        Were that taken for an answer, leaving the question open would earn nothing.
        """
        if self.gold_ids:
            return self.answers
        if self.type.casefold() in WITHOUT_ANSWER:
            return ()
        return tuple(answer for answer in self.answers if " ".join(words(answer)) not in NO_ANSWER)

    def record(self) -> dict[str, Any]:
        """The task as a line of `tasks.jsonl` holds it; what is empty is left out."""
        return {
            "id": self.id,
            "question": self.question,
            "answers": list(self.answers),
            "gold_ids": list(self.gold_ids),
            "hops": self.hops,
            **{name: value for name in ("type", "source", "split") if (value := getattr(self, name))},
            **{
                name: [asdict(item) for item in items]
                for name in ("excerpts", "decomposition")
                if (items := getattr(self, name))
            },
        }


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks as they lie on disk.

    Attributes:
        file: where the tasks were read from.
        directory: the evaluation set's folder, whose documents the gold ids name; None where the file lies beside no
            documents, so that a collection has to be named.
    """

    tasks: tuple[Task, ...]
    file: Path
    directory: Path | None

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.file.resolve().parent.name if self.file.name == QUERIES else self.file.stem


def task_id(question: str, answers: Iterable[str] = ()) -> str:
    """The id of a task that has none of its own: a hash of its question and answers, whatever their order.

    Case counts, white space and the form of characters do not.
    """
    parts = [_plain(question), *sorted({_plain(answer) for answer in answers})]
    return f"t-{hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode('utf-8', 'replace')).hexdigest()[:16]}"


def load_task_set(path: Path, *, split: str | None = None, limit: int | None = None) -> TaskSet:
    """The tasks of a `tasks.jsonl`, or of an evaluation set by its folder.

    A file that lies in such a folder, whatever its name, belongs to the folder's documents.

    Raises:
        TaskError: as `load_tasks`, or a folder without `queries.jsonl`.
    """
    file = path / QUERIES if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise TaskError(f"{path} is not an evaluation set: it has no {QUERIES}; `thresher train import` makes one")
    folder = file.parent
    has_documents = (folder / CORPUS).is_file() or (folder / DOCUMENTS).is_dir()
    return TaskSet(tuple(load_tasks(file, split=split, limit=limit)), file, folder if has_documents else None)


def read_tasks(path: Path) -> Iterator[Task]:
    """Read a `tasks.jsonl` or `queries.jsonl`, in file order. Fields that are not ours are ignored.

    Raises:
        TaskError: the file is missing, a line is not a task, or an id occurs twice. Of tasks without an id, no two may
            have the same question and answers.
    """
    for _, task in read_records(path):
        yield task


def read_records(path: Path) -> Iterator[tuple[dict[str, Any], Task]]:
    """The same, with each line as it stands in the file, fields that are not ours too.

    Raises:
        TaskError: as `read_tasks`.
    """
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                record, task = _parse(line, f"{path}:{number}")
                if task.id in seen:
                    raise TaskError(f"{path}:{number}: {_twice(record, task, seen[task.id])}")
                seen[task.id] = number
                yield record, task
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8: {error}") from error


def load_tasks(path: Path, *, split: str | None = None, limit: int | None = None) -> list[Task]:
    """The first `limit` tasks of a split, or of the whole file.

    Raises:
        TaskError: as `read_tasks`, or there is no such split.
    """
    tasks = list(read_tasks(path))
    if split is not None:
        splits = sorted({task.split for task in tasks if task.split})
        tasks = [task for task in tasks if task.split == split]
        if not tasks:
            known = f"it has {', '.join(splits)}" if splits else "its queries are not split; leave the split out"
            raise TaskError(f"{path} has no split {split!r}: {known}")
    if not tasks:
        raise TaskError(f"{path} holds no queries")
    return tasks[:limit]


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks, one a line; how many there were. A file that exists is replaced once all of them are written.

    Raises:
        TaskError: two tasks have one id.
    """
    seen: set[str] = set()

    def records() -> Iterator[dict[str, Any]]:
        for task in tasks:
            if task.id in seen:
                raise TaskError(f"two tasks have the id {task.id!r}: give each its own")
            seen.add(task.id)
            yield task.record()

    return write_lines(path, records())


def _twice(record: dict[str, Any], task: Task, line: int) -> str:
    if record.get("id") is None:
        return f"the same question and answers as line {line}: leave one of them out, or give both an id"
    return f"id {task.id!r} was used before, on line {line}"


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _parse(line: str, where: str) -> tuple[dict[str, Any], Task]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise TaskError(f"{where}: a task is a JSON object, got {type(record).__name__}")
    hops = record.get("hops", 1)
    if isinstance(hops, bool) or not isinstance(hops, int):
        raise TaskError(f"{where}: hops must be a whole number, got {hops!r}")
    question = _string(record, "question", where, required=True)
    answers = _strings(record, "answers", where)
    has_id = record.get("id") is not None
    return record, Task(
        id=_string(record, "id", where, required=True) if has_id else task_id(question, answers),
        question=question,
        answers=answers,
        gold_ids=_strings(record, "gold_ids", where),
        hops=hops,
        type=_string(record, "type", where),
        split=_string(record, "split", where),
        source=_string(record, "source", where),
        excerpts=tuple(_excerpt(item, at) for item, at in _objects(record, "excerpts", where)),
        decomposition=tuple(_step(item, at) for item, at in _objects(record, "decomposition", where)),
    )


def _objects(record: dict[str, Any], key: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a list, each with where it stands."""
    value = record.get(key)
    if value is None:
        return
    if not isinstance(value, list):
        raise TaskError(f"{where}: {key} must be a list of objects, got {value!r}")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise TaskError(f"{where}: {key}[{number}] must be an object, got {item!r}")
        yield item, f"{where}: {key}[{number}]"


def _excerpt(item: dict[str, Any], where: str) -> Excerpt:
    document = "doc" if "document" not in item and "doc" in item else "document"
    start, end = _offset(item, "start", where), _offset(item, "end", where)
    text = _string(item, "text", where, required=True)
    if end <= start:
        raise TaskError(f"{where}: end must be greater than start, got {start} and {end}")
    return Excerpt(_string(item, document, where, required=True), start, end, text)


def _step(item: dict[str, Any], where: str) -> Step:
    question = _string(item, "question", where, required=True)
    return Step(question, _string(item, "answer", where), _string(item, "gold_id", where))


def _offset(item: dict[str, Any], key: str, where: str) -> int:
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TaskError(f"{where}: {key} must be an offset in characters from 0, got {value!r}")
    return value


def _string(record: dict[str, Any], key: str, where: str, *, required: bool = False) -> str:
    value = record.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise TaskError(f"{where}: {key} must be {'non-empty ' if required else ''}text, got {value!r}")
    return value


def _strings(record: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TaskError(f"{where}: {key} must be a list of strings, got {value!r}")
    return tuple(dict.fromkeys(value))
