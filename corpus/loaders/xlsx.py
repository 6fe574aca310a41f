"""Excel workbooks (xlsx) through openpyxl, streamed: sheets as sections, rows as the CSV loader shows them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.package import open_office
from thresher.corpus.loaders.table import is_header, row_paragraph

MOST_CELLS = 2_000_000
_MOST_BLANK_ROWS = 1_100_000  # a sheet has 2 ** 20 rows; more is a lie


def extract_xlsx(data: bytes) -> Extracted:
    """Every sheet with its name as heading and a paragraph a row, each cell as `column: value`.

    Formulas show the value that was stored with them. Metadata: `sheets`, `rows`, `author`.

    Raises:
        NoText: no cell holds anything.
        LoaderError: it is damaged, encrypted, or has more than `MOST_CELLS` filled cells.
    """
    open_office(data, "workbook").close()
    blocks: list[str] = []
    rows = 0
    workbook = _open(data, values=True)
    try:
        left = MOST_CELLS
        for sheet in workbook.worksheets:
            paragraphs, used = _sheet(sheet, left)
            left -= used
            if paragraphs:
                rows += len(paragraphs)
                blocks += [f"# {one_line(normalise(sheet.title))}", *paragraphs]
        sheets = len(workbook.worksheets)
        # Not when it was changed: where a workbook does not say, openpyxl says now.
        title, author = (_said(workbook.properties, name) for name in ("title", "creator"))
    except (MemoryError, LoaderError):
        raise
    except Exception as error:  # openpyxl raises KeyError, ValueError, TypeError and XML errors on damaged sheets
        raise LoaderError(f"the workbook is damaged ({error}); open it and save it again") from error
    finally:
        workbook.close()
    if not blocks:
        if _has_formulas(data):
            raise NoText("the workbook has formulas but no values; open it in a spreadsheet program and save it")
        raise NoText("no cell of the workbook holds anything")
    metadata: dict[str, str | int] = {"format": "xlsx", "sheets": sheets, "rows": rows}
    if author and author != "openpyxl":
        metadata["author"] = author
    return Extracted(normalise("\n\n".join(blocks)).replace("\f", " "), title, metadata)


def _open(data: bytes, *, values: bool) -> Any:
    import openpyxl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # extensions that openpyxl does not keep
            return openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=values, keep_links=False)
    except MemoryError:
        raise
    except Exception as error:
        raise LoaderError(f"the workbook is damaged ({error}); open it and save it again") from error


def _said(properties: Any, name: str) -> str:
    value = getattr(properties, name, None)
    return one_line(normalise(value)) if isinstance(value, str) else ""


def _sheet(sheet: Any, most: int) -> tuple[list[str], int]:
    """The paragraphs of a sheet and how many cells they hold."""
    sheet.reset_dimensions()  # what the sheet says of its size may be a lie
    header: list[str] | None = None  # unknown; empty for none
    before: tuple[int, list[str]] | None = None  # a row that is a header only if the next one looks like its values
    paragraphs: list[str] = []
    used = 0
    for number, cells in _filled(sheet):
        used += sum(1 for cell in cells if cell)
        if used > most:
            raise LoaderError(f"the workbook has more than {MOST_CELLS:,} cells; save its sheets as CSV")
        if before is not None:
            if _heads(before[1], cells):
                header = before[1]
            else:
                paragraphs.append(row_paragraph(*before, ()))
                header = None if _count(before[1]) == 1 else []  # a title above the table, or a table without header
            before = None
        if header is None:
            before = (number, cells)
        else:
            paragraphs.append(row_paragraph(number, cells, header))
    if before is not None:
        paragraphs.append(row_paragraph(*before, ()))
    return paragraphs, used


def _heads(row: list[str], following: list[str]) -> bool:
    """Whether a row names the columns of the next one. A single cell does so only for a single one below it."""
    if not is_header(row):
        return False
    return _count(row) > 1 or _places(row) == _places(following)


def _count(row: list[str]) -> int:
    return len(_places(row))


def _places(row: list[str]) -> list[int]:
    return [place for place, cell in enumerate(row) if cell]


def _filled(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > _MOST_BLANK_ROWS:
            raise LoaderError("the workbook numbers more rows than a sheet can have; it is damaged or hostile")
        if not row or not any(value is not None for value in row):
            continue
        cells = [_shown(value) for value in row]
        if any(cells):
            yield number, cells


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
    return " ".join(str(value).split())


def _has_formulas(data: bytes) -> bool:
    workbook = _open(data, values=False)
    try:
        for sheet in workbook.worksheets:
            sheet.reset_dimensions()
            for row in sheet.iter_rows(values_only=True):
                if any(isinstance(value, str) and value.startswith("=") for value in row):
                    return True
    except MemoryError:
        raise
    except Exception:  # only the reason would be finer
        return False
    finally:
        workbook.close()
    return False
