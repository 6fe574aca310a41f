"""CSV and TSV: one document a file, one paragraph a row, each cell as `column: value`.

The chunker then packs whole rows into passages, so a hit reads by itself, a citation's span names the row, and a
register of 100,000 rows costs about a tenth of the vectors that a document a row would. Where single rows need
metadata filters, JSONL is the format.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise
from thresher.corpus.loaders.encoding import decode

_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE_ROWS = 50
_NUMBER = re.compile(r"[-+]?[\d.,\s%€$£]*\d[\d.,\s%€$£]*")
_FIELD_LIMIT = 16 * 1024 * 1024


def extract_table(data: bytes, *, delimiter: str | None = None) -> Extracted:
    """The rows of a table as text; `row: N` counts as a spreadsheet does.

    Metadata: `rows` (without the header) and `columns`.

    Raises:
        NoText: no cell holds anything.
        LoaderError: it cannot be read as rows and columns.
        Unsupported: the bytes are not text.
    """
    text = normalise(decode(data))
    if not text.strip():
        raise NoText("the file is empty" if not data else "the file holds only whitespace")
    # The limit is the module's, not the reader's; it is only ever raised, which no other user can notice.
    if csv.field_size_limit() < _FIELD_LIMIT:
        csv.field_size_limit(_FIELD_LIMIT)
    rows = _read(text, delimiter or _find_delimiter(text))
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(row)]
    if not filled:
        raise NoText("no cell of the table holds anything")
    header: Sequence[str] = ()
    if len(filled) > 1 and is_header(filled[0][1]):
        header = filled[0][1]
        filled = filled[1:]
    body = "\n\n".join(row_paragraph(number, row, header) for number, row in filled)
    metadata: dict[str, str | int] = {
        "format": "table",
        "rows": len(filled),
        "columns": max(len(row) for _, row in filled),
    }
    return Extracted(body, metadata=metadata)


def _read(text: str, delimiter: str) -> list[list[str]]:
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [[" ".join(cell.split()) for cell in row] for row in reader]
    except csv.Error as error:
        raise LoaderError(f"the table cannot be read as rows and columns ({error})") from error


def _find_delimiter(text: str) -> str:
    """The delimiter that splits the first rows most evenly into at least two columns."""
    sample = "\n".join(text.split("\n", _SAMPLE_ROWS)[:_SAMPLE_ROWS])
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
        try:
            widths = Counter(len(row) for row in rows if row)
        except csv.Error:  # not with this delimiter
            continue
        if not widths:
            continue
        width, count = widths.most_common(1)[0]
        score = count / widths.total() * (1 + min(width, 20) / 100) if width > 1 else 0.0
        if score > best_score:
            best, best_score = delimiter, score
    return best


def is_header(row: Sequence[str]) -> bool:
    """Column names: words, not numbers, and all different."""
    names = [cell for cell in row if cell]
    return bool(names) and len(set(names)) == len(names) and not any(_NUMBER.fullmatch(name) for name in names)


def row_paragraph(number: int, row: Sequence[str], header: Sequence[str]) -> str:
    """A row as lines `column: value`, led by its number; empty cells are left out."""
    lines = [f"row: {number}"]
    for place, cell in enumerate(row):
        if cell:
            name = header[place] if place < len(header) and header[place] else f"column {place + 1}"
            lines.append(f"{name}: {cell}")
    return "\n".join(lines)
