"""Word documents (docx) through python-docx: the body in order, then notes, comments, headers and footers.

The body's XML is walked here rather than through python-docx's paragraphs, which pass over content controls, text
boxes and inserted text that is still tracked as a change.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.ooxml import MC, M, W, properties, table_lines
from thresher.corpus.loaders.package import open_office

_TRANSPARENT = frozenset(
    W + name for name in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag", "hyperlink", "fldSimple")
) | {MC + "AlternateContent", MC + "Choice"}
_SKIPPED = frozenset(W + name for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "instrText", "delText")) | {
    MC + "Fallback"
}
_NOTES = (("footnotes", "footnote", ""), ("endnotes", "endnote", "e"))


def extract_docx(data: bytes) -> Extracted:
    """The text of a Word document, headings as `#` lines, lists as `-` or `1.` lines, tables a line a row.

    Raises:
        NoText: it holds no text.
        LoaderError: it is damaged, encrypted, or no Word document.
    """
    open_office(data, "Word document").close()
    import docx

    try:
        document = docx.Document(io.BytesIO(data))
        body = document.element.body
    except MemoryError:
        raise
    except Exception as error:  # python-docx raises KeyError, ValueError, lxml's and its own errors on damaged files
        raise LoaderError(f"the Word document is damaged ({error}); open it in Word and save it again") from error
    reader = _Body(_Styles(document), _Numbering(document))
    blocks = [] if body is None else list(reader.blocks(body))
    notes = [*_notes(document, reader), *_comments(document), *_margins(document, reader)]
    text = normalise("\n\n".join([*blocks, *notes])).replace("\f", "\n").strip()
    if not text:
        raise NoText("the Word document has no text; if it holds scanned pages, save them as PDF for OCR")
    title, metadata = properties(document.core_properties)
    return Extracted(text, title or reader.title, {"format": "docx", **metadata})


class _Styles:
    """Which paragraph styles are headings, and which number their paragraphs, following what each is based on."""

    def __init__(self, document: Any) -> None:
        self._styles = {style.get(W + "styleId"): style for style in document.styles.element.iter(W + "style")}
        self._levels: dict[str, int] = {}

    def level(self, style_id: str | None) -> int:
        """0 for a title, 1 to 9 for a heading, -1 for anything else."""
        if style_id is None:
            return -1
        if style_id not in self._levels:
            self._levels[style_id] = self._find_level(style_id)
        return self._levels[style_id]

    def numbering(self, style_id: str | None) -> Any:
        """The numPr element of a style, or None."""
        for style in self._chain(style_id):
            found = style.find(f"{W}pPr/{W}numPr")
            if found is not None:
                return found
        return None

    def _find_level(self, style_id: str) -> int:
        for style in self._chain(style_id):
            name = style.find(W + "name")
            words = (name.get(W + "val") or "").lower().split() if name is not None else []
            if words == ["title"]:
                return 0
            if len(words) == 2 and words[0] == "heading" and words[1].isdecimal():
                return int(words[1])
            outline = style.find(f"{W}pPr/{W}outlineLvl")
            if outline is not None and (outline.get(W + "val") or "").isdecimal():
                level = int(outline.get(W + "val")) + 1
                return level if level < 10 else -1
        return -1

    def _chain(self, style_id: str | None) -> Iterator[Any]:
        seen = set()
        while style_id in self._styles and style_id not in seen:
            seen.add(style_id)
            style = self._styles[style_id]
            yield style
            base = style.find(W + "basedOn")
            style_id = base.get(W + "val") if base is not None else None


class _Numbering:
    """Markers of list items. Numbers count a list's items; Word's own numbering schemes are not drawn."""

    def __init__(self, document: Any) -> None:
        self._bullets: dict[tuple[str, str], bool] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        try:
            root = document.part.numbering_part.element
        except (KeyError, NotImplementedError, AttributeError):  # the document has none
            return
        abstract = {item.get(W + "abstractNumId"): item for item in root.iter(W + "abstractNum")}
        for number in root.iter(W + "num"):
            reference = number.find(W + "abstractNumId")
            definition = abstract.get(reference.get(W + "val")) if reference is not None else None
            for level in definition.iter(W + "lvl") if definition is not None else ():
                form = level.find(W + "numFmt")
                bullet = form is not None and form.get(W + "val") in ("bullet", "none")
                self._bullets[number.get(W + "numId"), level.get(W + "ilvl")] = bullet

    def marker(self, properties: Any) -> str:
        """What an item begins with; empty if its numbering is switched off."""
        number, level = (properties.find(W + name) for name in ("numId", "ilvl"))
        number_id = number.get(W + "val") if number is not None else None
        if number_id in (None, "0"):
            return ""
        depth = level.get(W + "val") if level is not None else "0"
        indent = "  " * min(int(depth), 8) if depth.isdecimal() else ""
        if self._bullets.get((number_id, depth), True):
            return f"{indent}- "
        self._counts[number_id, depth] += 1
        for key in [key for key in self._counts if key[0] == number_id and key[1] > depth]:
            del self._counts[key]
        return f"{indent}{self._counts[number_id, depth]}. "


@dataclass(slots=True)
class _Body:
    """Walks block elements. `title` is the first title or heading met."""

    styles: _Styles
    numbering: _Numbering
    title: str = ""
    _list: list[str] = field(default_factory=list)

    def blocks(self, parent: Any) -> Iterator[str]:
        """The blocks below an element; consecutive list items are one block."""
        for item, is_item in self._walk(parent):
            if is_item:
                self._list.append(item)
                continue
            yield from self._flush()
            yield item
        yield from self._flush()

    def _flush(self) -> Iterator[str]:
        items, self._list = self._list, []
        if items:
            yield "\n".join(items)

    def _walk(self, parent: Any) -> Iterator[tuple[str, bool]]:
        for child in parent:
            if child.tag == W + "p":
                boxes: list[Any] = []
                text = "".join(_runs(child, boxes)).strip()
                if text:
                    yield self._paragraph(child, text)
                for box in boxes:
                    yield from self._walk(box)
            elif child.tag == W + "tbl":
                rows = table_lines(self._rows(child))
                if rows:
                    yield rows, False
            elif child.tag in _TRANSPARENT:
                yield from self._walk(child)

    def _paragraph(self, paragraph: Any, text: str) -> tuple[str, bool]:
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        style_id = style.get(W + "val") if style is not None else None
        outline = paragraph.find(f"{W}pPr/{W}outlineLvl")
        level = self.styles.level(style_id)
        if level < 0 and outline is not None and outline.get(W + "val") in tuple("012345678"):
            level = int(outline.get(W + "val")) + 1
        if level >= 0:
            text = one_line(text, 1000)
            self.title = self.title or one_line(text)
            return f"{'#' * min(max(level, 1), 6)} {text}", False
        numbered = paragraph.find(f"{W}pPr/{W}numPr")
        if numbered is None:
            numbered = self.styles.numbering(style_id)
        marker = self.numbering.marker(numbered) if numbered is not None else ""
        return marker + text, bool(marker)

    def _rows(self, table: Any) -> Iterator[list[str]]:
        for row in _rows_of(table):
            cells = []
            for cell in _cells_of(row):
                merged = cell.find(f"{W}tcPr/{W}vMerge")
                continues = merged is not None and merged.get(W + "val") != "restart"
                cells.append("" if continues else " ".join(text for text, _ in self._walk(cell)))
            yield cells


def _rows_of(table: Any) -> Iterator[Any]:
    for child in table:
        if child.tag == W + "tr":
            yield child
        elif child.tag in _TRANSPARENT:
            yield from _rows_of(child)


def _cells_of(row: Any) -> Iterator[Any]:
    for child in row:
        if child.tag == W + "tc":
            yield child
        elif child.tag in _TRANSPARENT:
            yield from _cells_of(child)


def _runs(parent: Any, boxes: list[Any]) -> Iterator[str]:
    """The text of a paragraph; text boxes anchored in it are put into `boxes`."""
    for child in parent:
        tag = child.tag
        if tag in (W + "t", M + "t"):
            yield child.text or ""
        elif tag in (W + "tab", W + "ptab"):
            yield "\t"
        elif tag in (W + "br", W + "cr"):
            yield "\n"
        elif tag == W + "noBreakHyphen":
            yield "-"
        elif tag == W + "footnoteReference":
            yield f"[^{child.get(W + 'id')}]"
        elif tag == W + "endnoteReference":
            yield f"[^e{child.get(W + 'id')}]"
        elif tag == W + "txbxContent":
            boxes.append(child)
        elif tag not in _SKIPPED and isinstance(tag, str):
            yield from _runs(child, boxes)


def _notes(document: Any, reader: _Body) -> Iterator[str]:
    """Footnotes and endnotes, which python-docx does not know, as `[^1]: text`."""
    from lxml import etree

    for name, element, mark in _NOTES:
        for relation in document.part.rels.values():
            if relation.is_external or not relation.reltype.endswith(f"/{name}"):
                continue
            try:
                root = etree.fromstring(relation.target_part.blob, etree.XMLParser(resolve_entities=False))
            except etree.XMLSyntaxError:
                continue
            for note in root.iter(W + element):
                text = " ".join(" ".join(reader.blocks(note)).split())
                if text and note.get(W + "type") in (None, "normal"):
                    yield f"[^{mark}{note.get(W + 'id')}]: {text}"


def _comments(document: Any) -> Iterator[str]:
    try:
        comments = list(document.comments)
    except Exception:  # a damaged comments part; the body is what counts
        return
    for comment in comments:
        text = " ".join(paragraph.text for paragraph in comment.paragraphs).strip()
        if text:
            author = one_line(comment.author or "")
            yield f"Comment ({author}): {text}" if author else f"Comment: {text}"


def _margins(document: Any, reader: _Body) -> Iterator[str]:
    """Headers and footers, each text once; bare page numbers are none."""
    seen = set()
    for relation in document.part.rels.values():
        kind = relation.reltype.rsplit("/", 1)[-1]
        if relation.is_external or kind not in ("header", "footer"):
            continue
        element = getattr(relation.target_part, "element", None)
        text = " ".join(" ".join(reader.blocks(element)).split()) if element is not None else ""
        if text not in seen and any(character.isalpha() for character in text):
            seen.add(text)
            yield f"{kind.capitalize()}: {text}"
