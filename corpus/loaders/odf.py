"""OpenDocument (odt, ods, odp): the text of `content.xml`, streamed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from thresher.corpus.documents import PAGE_BREAK
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.ooxml import table_lines
from thresher.corpus.loaders.package import Encrypted, open_office, read_member_bytes

_NS = "urn:oasis:names:tc:opendocument:xmlns:"
_TEXT, _TABLE = f"{{{_NS}text:1.0}}", f"{{{_NS}table:1.0}}"
_OFFICE, _DRAW = f"{{{_NS}office:1.0}}", f"{{{_NS}drawing:1.0}}"
_META_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_SKIPPED = frozenset({_TEXT + "tracked-changes", _OFFICE + "forms", _TEXT + "sequence-decls", _TABLE + "shapes"})
_MOST_REPEATS = 1000


def extract_odf(data: bytes) -> Extracted:
    """Headings as `#` lines, lists as `-` lines, tables a line a row; sheets by name; slides as pages.

    Raises:
        NoText: it holds no text.
        LoaderError: it is damaged or encrypted.
    """
    what = "OpenDocument file"
    with open_office(data, what) as package:
        if "META-INF/manifest.xml" in package.namelist() and b"encryption-data" in read_member_bytes(
            package, "META-INF/manifest.xml", what
        ):
            raise Encrypted(f"the {what} needs a password; save it without one")
        root = _parsed(read_member_bytes(package, "content.xml", what))
        title = _title(package, what)
    body = root.find(_OFFICE + "body")
    blocks = list(_blocks(body)) if body is not None else []
    pages = sum(1 for block in blocks if block == PAGE_BREAK)
    text = "\n\n".join(normalise(block).strip(" \t\n") for block in blocks).strip(" \n")
    if not text.replace(PAGE_BREAK, "").strip():
        raise NoText("the document has no text")
    text = re.sub(rf"\n*{PAGE_BREAK}\n*", PAGE_BREAK, text).removeprefix(PAGE_BREAK)
    heading = next((block.lstrip("# ") for block in blocks if block.startswith("#")), "")
    metadata: dict[str, str | int] = {"format": "odf"}
    if pages:
        metadata["pages"] = pages
    return Extracted(text, title or one_line(heading), metadata)


def _parsed(content: bytes) -> Any:
    from lxml import etree

    try:
        return etree.parse(io.BytesIO(content), etree.XMLParser(resolve_entities=False, no_network=True)).getroot()
    except etree.XMLSyntaxError as error:
        raise LoaderError(f"the OpenDocument file is damaged ({error}); open it and save it again") from error


def _title(package: Any, what: str) -> str:
    if "meta.xml" not in package.namelist():
        return ""
    found = next(_parsed(read_member_bytes(package, "meta.xml", what)).iter(_META_TITLE), None)
    return one_line(normalise(found.text or "")) if found is not None else ""


def _blocks(parent: Any, indent: int = -1) -> Iterator[str]:
    """Blocks in order; each slide begins with `PAGE_BREAK`."""
    for child in parent:
        tag = child.tag
        if tag == _TEXT + "h":
            level = child.get(_TEXT + "outline-level") or "1"
            text = one_line(_inline(child), 1000)
            if text:
                yield "#" * min(int(level) if level.isdecimal() else 1, 6) + " " + text
        elif tag == _TEXT + "p":
            text = _inline(child).strip()
            if text:
                yield "  " * indent + "- " + text if indent >= 0 else text
            for box in child.iter(_DRAW + "text-box"):
                yield from _blocks(box)
        elif tag == _TEXT + "list":
            items = "\n".join(_blocks(child, min(indent + 1, 8)))
            if items:
                yield items
        elif tag == _TABLE + "table":
            rows = table_lines(_rows(child))
            if rows:
                name = child.get(_TABLE + "name") if parent.tag == _OFFICE + "spreadsheet" else None
                yield f"# {one_line(name)}\n\n{rows}" if name else rows
        elif tag == _DRAW + "page":
            yield PAGE_BREAK
            yield from _blocks(child)
        elif isinstance(tag, str) and tag not in _SKIPPED:
            yield from _blocks(child, indent)


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.iter(_TABLE + "table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in (_TABLE + "table-cell", _TABLE + "covered-table-cell"):
                continue
            repeats = cell.get(_TABLE + "number-columns-repeated") or "1"
            text = " ".join(_inline(paragraph) for paragraph in cell.iter(_TEXT + "p"))
            count = int(repeats) if text and repeats.isdecimal() else 1
            cells += [text] * min(count, _MOST_REPEATS)
        yield cells


def _inline(element: Any) -> str:
    pieces: list[str] = []
    _gather(element, pieces)
    return "".join(pieces)


def _gather(element: Any, pieces: list[str]) -> None:
    pieces.append(" ".join((element.text or "").split("\n")))
    for child in element:
        if child.tag == _TEXT + "s":
            pieces.append(" ")
        elif child.tag == _TEXT + "tab":
            pieces.append("\t")
        elif child.tag == _TEXT + "line-break":
            pieces.append("\n")
        elif child.tag == _TEXT + "note":
            body = child.find(_TEXT + "note-body")
            pieces.append(" (" + " ".join(_inline(body).split()) + ")" if body is not None else "")
        elif isinstance(child.tag, str) and child.tag not in (_DRAW + "text-box", _OFFICE + "annotation"):
            _gather(child, pieces)
        pieces.append(" ".join((child.tail or "").split("\n")))
