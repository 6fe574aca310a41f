"""Where an importer puts what it reads: tasks are kept, documents go straight to disk, what is left out is counted."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from thresher.train.tasks.task import Task, TaskError, task_id


class Sink:
    """Takes tasks and documents; used as a context manager, around the whole import.

    Documents are written as they come, since the pool of a large set does not fit into memory twice.

    Args:
        corpus: the file that documents are written to. It is made with the first of them.
    """

    def __init__(self, corpus: Path) -> None:
        self.tasks: list[Task] = []
        self.left_out: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        """Where the first of each kind that was left out stands."""
        self.documents = 0
        self.repeated_documents = 0
        self._corpus = corpus
        self._stop: int | None = None
        self._file: TextIO | None = None
        self._seen: dict[str, bytes] = {}
        self._content: dict[bytes, str] = {}
        self._ids: dict[str, tuple[Task, str]] = {}
        self._questions: dict[tuple[str, frozenset[str]], str] = {}

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def begin(self, limit: int | None) -> None:
        """A source begins, of which at most `limit` tasks are wanted; None: all."""
        self._stop = None if limit is None else len(self.tasks) + limit

    @property
    def full(self) -> bool:
        """Whether no more tasks of this source are wanted."""
        return self._stop is not None and len(self.tasks) >= self._stop

    def paragraph(self, title: str, text: str) -> str | None:
        """Put a document that has no id of its own; its id, the same for the same title and text, in every import.

        None where it is empty.
        """
        title, text = _plain(title), _plain(text)
        if not text:
            return None
        digest = _digest(title, text)
        if (known := self._content.get(digest)) is not None:
            self.repeated_documents += 1
            return known
        own = f"p-{digest.hex()}"
        self._content[digest] = own
        self._write(own, title, text, {})
        return own

    def document(self, own_id: str, title: str, text: str, metadata: dict[str, object], where: str) -> bool:
        """Put a document under its own id; whether it is there now. One without any text is left out.

        Raises:
            TaskError: another document has the id.
        """
        if not text.strip():
            if not title.strip():
                self.leave_out("documents without text", where)
                return False
            text = title
        digest = _digest(_plain(title), _plain(text))
        if own_id in self._seen:
            if self._seen[own_id] != digest:
                raise TaskError(f"{where}: another document has the id {own_id!r}: ids must differ")
            self.repeated_documents += 1
            return True
        self._seen[own_id] = digest
        self._write(own_id, title, text, metadata)
        return True

    def has_document(self, own_id: str) -> bool:
        """Whether a document of that id was put."""
        return own_id in self._seen

    def task(self, task: Task, where: str) -> None:
        """Put a task. What was there before, with the same gold documents, is left out.

        Raises:
            TaskError: another task has its id.
        """
        known = self._ids.get(task.id)
        if known is not None and not _same(known[0], task):
            raise TaskError(f"{where}: id {task.id!r} was used before, for another question, {known[1]}")
        content = (task_id(task.question, task.answers), frozenset(task.gold_ids))
        if content in self._questions:
            self.leave_out("repeated questions", f"{where}, as {self._questions[content]}")
            return
        self._questions[content] = where
        self._ids[task.id] = (task, where)
        self.tasks.append(task)

    def leave_out(self, reason: str, where: str, count: int = 1) -> None:
        """Count what is left out; `where` it stands, for the first of them."""
        self.left_out[reason] += count
        self.examples.setdefault(reason, where)

    def _write(self, own_id: str, title: str, text: str, metadata: dict[str, object]) -> None:
        if self._file is None:
            self._file = self._corpus.open("w", encoding="utf-8", newline="\n", errors="replace")
        record = {"id": own_id, "title": title, "text": text, "metadata": metadata}
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.documents += 1


def text_of(sentences: Iterable[str]) -> str:
    """Sentences as one paragraph."""
    return " ".join(stripped for sentence in sentences if (stripped := sentence.strip()))


def _same(one: Task, other: Task) -> bool:
    return (one.question, one.answers, one.gold_ids) == (other.question, other.answers, other.gold_ids)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _digest(title: str, text: str) -> bytes:
    return hashlib.blake2b(f"{title}\n{text}".encode("utf-8", "replace"), digest_size=8).digest()
