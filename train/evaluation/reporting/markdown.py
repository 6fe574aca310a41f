"""A report as GitHub-flavoured Markdown. Text of the data is escaped: it cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thresher.train.evaluation.reporting.figures import count, day_and_time
from thresher.train.evaluation.reporting.notes import facts, how_to_read, remarks
from thresher.train.evaluation.reporting.reading import Data, failures, overall, parts
from thresher.train.evaluation.reporting.tables import Cell, Table, part_tables, sets_table, systems_table

_FAILURES = 50
"""Failures that are listed; the page has them all."""
_ERROR = 300
"""Characters of an error that are shown."""
_MARKS = re.compile(r"[\\`*\[\]<>|~&$#!{}]|(?<![^\W_])_|_(?![^\W_])|(?<!\w)@")
# Controls, line and paragraph separators, lone surrogates, and what turns the direction of text around.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def markdown(data: Data) -> str:
    """The whole report.

    Args:
        data: `Evaluation.as_dict()`, as it is or read from `evaluation.json`.
    """
    return "\n".join(_lines(data)).rstrip("\n") + "\n"


def table_text(table: Table) -> str:
    """One table, without its title, to be pasted where Markdown is read."""
    rule = [":---" if at == 0 or name in table.words else "---:" for at, name in enumerate(table.head)]
    lines = [_row([escaped(name) for name in table.head]), _row(rule)]
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Foreign text on one line, without a character that Markdown would read as markup."""
    line = _UNFIT.sub(" ", text).strip()
    return _MARKS.sub(lambda found: "\\" + found.group(), line).replace("://", ":\\/\\/").replace("www.", "www\\.")


def _lines(data: Data) -> Iterator[str]:
    day = day_and_time(data.get("date")) if data.get("date") else ""
    yield f"# Evaluation{f', {escaped(day)}' if day else ''}"
    yield ""
    for name, value in facts(data):
        yield f"- {name}: {escaped(value)}"
    if data.get("command"):
        yield f"- command: {_code(_command(data['command']))}"
    yield ""
    for table in (sets_table(data), systems_table(data)):
        if table is not None:
            yield f"## {table.title}"
            yield from _table(table)
    whole = overall(data)
    for part in ([whole] if whole else []) + parts(data):
        yield f"## {escaped(part.name)}"
        yield ""
        for remark in remarks(part):
            yield f"- {escaped(remark)}"
            yield ""
        for table in part_tables(part, data):
            yield f"### {escaped(table.title)}"
            yield from _table(table)
    yield from _failures(data)
    yield "## How to read this"
    yield ""
    for line in how_to_read(data):
        yield f"- {escaped(line)}"


def _table(table: Table) -> Iterator[str]:
    yield ""
    yield table_text(table)
    yield ""
    if table.note:
        yield escaped(table.note)
        yield ""


def _failures(data: Data) -> Iterator[str]:
    found = failures(data)
    if not found:
        return
    head = ("set", "question", "system", "error")
    rows = tuple(
        (Cell(name), *(Cell(str(failure.get(key, ""))) for key in ("id", "system")), Cell(_short(failure)))
        for name, failure in found[:_FAILURES]
    )
    rest = len(found) - len(rows)
    yield "## Failures"
    yield from _table(Table("Failures", head, rows, frozenset(head), f"And {count(rest)} more." if rest else ""))


def _short(failure: Data) -> str:
    error = str(failure.get("error", ""))
    return error if len(error) <= _ERROR else f"{error[:_ERROR]}…"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    strong = f"**{escaped(cell.strong)}**" if cell.strong else ""
    return " ".join(part for part in (strong, escaped(cell.text)) if part)


def _command(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _code(text: str) -> str:
    """A code span; its fence is longer than any run of backticks inside (CommonMark 6.1)."""
    line = _UNFIT.sub(" ", text).strip()
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}"
