"""Plain tables of questions and answers: CSV and TSV, with a header line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thresher.corpus.errors import CorpusError
from thresher.corpus.loaders.encoding import decode
from thresher.train.tasks.importing.sink import Sink
from thresher.train.tasks.task import Task, TaskError, task_id

CSV = "csv"
SUFFIXES = (".csv", ".tsv", ".tab")

NO_QUESTION = "rows without a question"
NOTHING_KNOWN = "rows with neither an answer nor a gold document"

ALIASES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "query", "prompt", "questiontext", "userquestion", "q"),
    "answers": (
        *("answer", "answers", "expectedanswer", "expectedanswers", "expected", "expectedoutput", "goldanswer"),
        *("goldanswers", "groundtruth", "groundtruthanswer", "reference", "referenceanswer", "correctanswer", "a"),
    ),
    "gold_ids": (
        *("goldids", "goldid", "gold", "golddocument", "golddocuments", "documentid", "documentids", "docid", "docids"),
        *("document", "documents", "relevantdocuments", "evidenceids", "evidence", "file", "files"),
    ),
    "hops": ("hops", "hop", "nhops"),
    "type": ("type", "questiontype", "kind", "category"),
    "source": ("source", "origin"),
    "split": ("split", "set", "fold", "partition"),
    "id": ("id", "qid", "questionid", "taskid"),
}
"""What a column may be called, by the field that it fills; case, spaces and punctuation do not count."""
SEVERAL = ("answers", "gold_ids")
"""Fields that several columns may fill: `answer 1`, `answer 2`."""

_DELIMITERS = (",", ";", "\t", "|")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_FIELD_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a table is read.

    Attributes:
        delimiter: between cells; None finds it by the header.
        separator: between several answers, or gold ids, of one cell; None: a cell is one, or a JSON list of them.
        columns: column by field, for headers that are called otherwise.
        keep_unanswerable: keep questions with neither an answer nor a gold document, as ones that the corpus cannot
            answer.
    """

    delimiter: str | None = None
    separator: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    keep_unanswerable: bool = False

    def __post_init__(self) -> None:
        if unknown := next((name for name in self.columns if name not in ALIASES), None):
            raise TaskError(f"there is no field {unknown!r}; the fields are {', '.join(ALIASES)}")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise TaskError(f"a delimiter is one character, got {self.delimiter!r}")
        if self.separator == "":
            raise TaskError("the separator of answers is empty: give the text that stands between two of them")


AS_FOUND = TableOptions()
"""A table that says itself how it is to be read."""


def import_table(path: Path, sink: Sink, split: str, options: TableOptions = AS_FOUND) -> None:
    """Read a table. Encodings are detected as for documents.

    Args:
        split: of rows that name none themselves.

    Raises:
        TaskError: it cannot be read as a table, has no column of questions or no other that tells of answers, or a row
            does not fit its header.
    """
    try:
        text = decode(path.read_bytes())
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from error
    except CorpusError as error:
        hint = ": save the sheet as CSV" if path.read_bytes()[:2] == b"PK" else ""
        raise TaskError(f"{path} is not a table: {error}{hint}") from error
    table = _Table(path, text, options)
    for line, cells in table.rows:
        if sink.full:
            return
        row = _Row(table, f"{path}:{line}", cells)
        question = row.one("question")
        if not question:
            sink.leave_out(NO_QUESTION, row.where)
            continue
        answers, gold = row.several("answers"), row.several("gold_ids")
        if not answers and not gold and not options.keep_unanswerable:
            sink.leave_out(NOTHING_KNOWN, row.where)
            continue
        task = Task(
            id=row.one("id") or task_id(question, answers),
            question=question,
            answers=answers,
            gold_ids=gold,
            hops=row.hops(gold),
            type=row.one("type"),
            split=row.one("split") or split,
            source=row.one("source") or path.name,
        )
        sink.task(task, row.where)


class _Table:
    """The rows of a table, and which of its columns fills which field."""

    def __init__(self, path: Path, text: str, options: TableOptions) -> None:
        self.options = options
        # The limit is the module's, not the reader's; it is only ever raised, which no other user can notice.
        csv.field_size_limit(max(csv.field_size_limit(), _FIELD_LIMIT))
        self._path, self._text = path, text
        if not text.strip():
            raise TaskError(f"{path} is empty")
        delimiter = options.delimiter or self._find_delimiter()
        rows = self._read(delimiter)
        _, self.header = next(rows)
        self.columns = self._columns()
        self.rows = rows

    def _columns(self) -> dict[str, list[int]]:
        """Columns by field."""
        columns = _known_columns(self.header)
        for name, wanted in self.options.columns.items():
            places = [place for place, cell in enumerate(self.header) if cell.strip() == wanted.strip()]
            if not places:
                raise TaskError(f"{self._path}: there is no column {wanted!r}; {self._said()}")
            columns = {other: [i for i in found if i not in places] for other, found in columns.items()}
            columns[name] = places
        for name, places in columns.items():
            if len(places) > 1 and name not in SEVERAL:
                names = " and ".join(repr(self.header[place]) for place in places)
                raise TaskError(f"{self._path}: {names} could both be the {name}: say which, as {name}=COLUMN")
        if not columns.get("question"):
            raise TaskError(
                f"{self._path}: no column holds the questions; {self._said()}; "
                "call one of them question, or say which it is, as question=COLUMN"
            )
        if not columns.get("answers") and not columns.get("gold_ids"):
            raise TaskError(
                f"{self._path}: no column holds answers or ids of gold documents; {self._said()}; "
                "call one of them answer or gold_ids, or say which it is, as answers=COLUMN"
            )
        return {name: places for name, places in columns.items() if places}

    def _said(self) -> str:
        return f"the columns are {', '.join(repr(cell) for cell in self.header)}"

    def _find_delimiter(self) -> str:
        """The one that makes most known columns of the header; of equals the one that makes most columns."""
        named = set(self.options.columns.values())

        def fit(delimiter: str) -> tuple[int, int]:
            try:
                _, header = next(self._read(delimiter))
            except TaskError:
                return (-1, 0)
            known = sum(bool(places) for places in _known_columns(header).values())
            return (known + len(named.intersection(map(str.strip, header))), len(header))

        return max(_DELIMITERS, key=fit)

    def _read(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of each row that is not blank; a row may span lines, and counts by its first."""
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=delimiter, strict=True)
        width, first = 0, 1
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = "a quotation mark is not closed" if "unexpected end of data" in str(error) else str(error)
                raise TaskError(
                    f"{self._path}:{first}: cannot be read as cells between {_NAMES.get(delimiter, repr(delimiter))}s: "
                    f"{reason}"
                ) from error
            line, first = first, reader.line_num + 1
            if not any(cell.strip() for cell in row):
                continue
            while len(row) > max(width, 1) and width and not row[-1].strip():
                row.pop()
            if width and len(row) > width:
                raise TaskError(
                    f"{self._path}:{line}: {len(row)} cells, but the header has {width}: "
                    f"put cells that contain a {_NAMES.get(delimiter, delimiter)} in double quotes"
                )
            width = width or len(row)
            yield line, row


@dataclass(frozen=True, slots=True)
class _Row:
    table: _Table
    where: str
    cells: Sequence[str]

    def one(self, name: str) -> str:
        """The only cell of a field, on one line."""
        return " ".join(next(self._filled(name), "").split())

    def several(self, name: str) -> tuple[str, ...]:
        """All values of a field."""
        separator = self.table.options.separator
        values: list[str] = []
        for cell in self._filled(name):
            if (listed := _json_list(cell)) is not None:
                values += listed
            else:
                values += cell.split(separator) if separator else [cell]
        return tuple(dict.fromkeys(plain for value in values if (plain := " ".join(value.split()))))

    def hops(self, gold: Sequence[str]) -> int:
        """What the row says, else the number of gold documents."""
        said = self.one("hops")
        if not said:
            return max(1, len(gold))
        if not said.isdecimal():
            raise TaskError(f"{self.where}: hops must be a whole number, got {said!r}")
        return int(said)

    def _filled(self, name: str) -> Iterator[str]:
        for place in self.table.columns.get(name, ()):
            if place < len(self.cells) and self.cells[place].strip():
                yield self.cells[place].strip()


def _known_columns(header: Sequence[str]) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {name: [] for name in ALIASES}
    for place, cell in enumerate(header):
        plain = re.sub(r"[\W_]+", "", cell.casefold())
        for name, aliases in ALIASES.items():
            if plain in aliases or (name in SEVERAL and plain.rstrip("0123456789") in aliases):
                columns[name].append(place)
    return columns


def _json_list(cell: str) -> list[str] | None:
    """A cell that is a JSON list of texts and numbers."""
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(item, str | int | float) for item in value):
        return None
    return [str(item) for item in value]
