"""Jupyter notebooks: markdown and code cells in order, with the text that running them printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.encoding import decode

LONGEST_OUTPUT = 4000
"""Characters kept of the outputs of one cell: results, not logs."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_LONG_DATA = re.compile(r"[A-Za-z0-9+/=]{400,}")  # base64 in outputs and markdown


def extract_notebook(data: bytes) -> Extracted:
    """Markdown as it is, code in fences, outputs as `Output:` paragraphs; pictures and HTML outputs are left out.

    Metadata: `language`, `cells`.

    Raises:
        NoText: no cell holds anything.
        LoaderError: it is no notebook.
    """
    try:
        notebook = json.loads(decode(data))
    except ValueError as error:
        raise LoaderError(f"the notebook is not JSON: {error}") from error
    except RecursionError as error:
        raise LoaderError("the notebook is nested too deeply") from error
    cells = _cells(notebook)
    language = _language(notebook)
    blocks = [block for cell in cells for block in _blocks(cell, language) if block.strip()]
    text = normalise("\n\n".join(blocks)).replace("\f", "\n").strip()
    if not text:
        raise NoText("no cell of the notebook holds text")
    metadata: dict[str, str | int] = {"format": "notebook", "cells": len(cells)}
    if language:
        metadata["language"] = language
    return Extracted(text, _title(notebook, cells), metadata)


def _cells(notebook: Any) -> list[Mapping[str, Any]]:
    if not isinstance(notebook, dict):
        raise LoaderError("the file is JSON, but no notebook")
    cells = notebook.get("cells")
    if cells is None and isinstance(notebook.get("worksheets"), list):  # version 3
        sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    if not isinstance(cells, list):
        raise LoaderError("the file is JSON, but no notebook: it has no cells")
    return [cell for cell in cells if isinstance(cell, dict)]


def _blocks(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input")))
    if not source.strip():
        return
    if cell.get("cell_type") != "code":
        level = cell.get("level") if cell.get("cell_type") == "heading" else None  # version 3
        yield ("#" * level + " " if isinstance(level, int) else "") + _LONG_DATA.sub("", source.strip())
        return
    yield f"```{language}\n{source.strip()}\n```"
    outputs = cell.get("outputs")
    printed = "\n".join(_outputs(outputs if isinstance(outputs, list) else [])).strip()
    if len(printed) > LONGEST_OUTPUT:
        printed = printed[:LONGEST_OUTPUT].rstrip() + " …"
    if printed:
        yield f"Output:\n{printed}"


def _outputs(outputs: list[Any]) -> Iterator[str]:
    for output in outputs:
        if not isinstance(output, dict):
            continue
        if output.get("output_type") in ("error", "pyerr"):
            yield f"{output.get('ename', 'Error')}: {output.get('evalue', '')}"
            continue
        data = output.get("data")
        text = output.get("text") if not isinstance(data, dict) else data.get("text/plain", data.get("text/markdown"))
        yield _LONG_DATA.sub("", _ANSI.sub("", _joined(text)[: 10 * LONGEST_OUTPUT]))


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _language(notebook: Mapping[str, Any]) -> str:
    about = notebook.get("metadata")
    for key in ("language_info", "kernelspec"):
        inner = about.get(key) if isinstance(about, dict) else None
        name = inner.get("name" if key == "language_info" else "language") if isinstance(inner, dict) else None
        if isinstance(name, str) and name.isascii():
            return one_line(name, 40).lower()
    return ""


def _title(notebook: Mapping[str, Any], cells: list[Mapping[str, Any]]) -> str:
    about = notebook.get("metadata")
    if isinstance(about, dict) and isinstance(about.get("title"), str) and about["title"].strip():
        return one_line(normalise(about["title"]))
    for cell in cells:
        if cell.get("cell_type") == "heading":
            return one_line(normalise(_joined(cell.get("source"))))
        if cell.get("cell_type") == "markdown" and (heading := _HEADING.search(_joined(cell.get("source")))):
            return one_line(normalise(heading.group(1)))
    return ""
