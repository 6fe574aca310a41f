"""PowerPoint presentations (pptx) through python-pptx: a slide is a page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from thresher.corpus.documents import PAGE_BREAK
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.ooxml import properties, table_lines
from thresher.corpus.loaders.package import open_office

_DEEPEST_GROUP = 20
_A_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_LINE_BREAKS = str.maketrans({"\v": "\n", "\f": "\n"})


def extract_pptx(data: bytes) -> Extracted:
    """Slides in order, each with its title as heading, its text from top to bottom, tables, charts, and its notes.

    Slides are separated by `PAGE_BREAK`, empty ones too, so that offsets can be turned into slide numbers.
    Metadata: `pages`, the number of slides, and `unreadable_pages` where single ones are damaged.

    Raises:
        NoText: no slide holds text.
        LoaderError: it is damaged, encrypted, or no presentation.
    """
    open_office(data, "presentation").close()
    import pptx

    try:
        presentation = pptx.Presentation(io.BytesIO(data))
        slides = list(presentation.slides)
    except MemoryError:
        raise
    except Exception as error:  # python-pptx raises KeyError, ValueError, lxml's and its own errors on damaged files
        raise LoaderError(f"the presentation is damaged ({error}); open it and save it again") from error
    pages, unreadable, first = [], 0, ""
    for slide in slides:
        try:
            blocks = list(_slide(slide))
        except MemoryError:
            raise
        except Exception:  # a slide that breaks python-pptx costs itself
            blocks, unreadable = [], unreadable + 1
        text = normalise("\n\n".join(blocks).translate(_LINE_BREAKS)).replace(PAGE_BREAK, "\n").strip()
        first = first or (text[2:].split("\n", 1)[0] if text.startswith("# ") else "")
        pages.append(text)
    if unreadable and unreadable == len(pages):
        raise LoaderError(f"none of the {unreadable} slides can be read; open the presentation and save it again")
    if not any(pages):
        raise NoText(f"none of the {len(pages)} slides holds text; pictures of text need OCR: save them as PDF")
    title, metadata = properties(presentation.core_properties)
    if title.lower() in ("powerpoint presentation", "presentation"):
        title = ""
    metadata |= {"format": "pptx", "pages": len(pages)}
    if unreadable:
        metadata["unreadable_pages"] = unreadable
    return Extracted(PAGE_BREAK.join(pages), title or one_line(first), metadata)


def _slide(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        yield f"# {one_line(title.text_frame.text)}"
    own = title.shape_id if title is not None else None
    yield from _shapes([shape for shape in slide.shapes if shape.shape_id != own])
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
        yield f"Notes: {frame.text.strip()}"


def _shapes(shapes: list[Any], depth: int = 0) -> Iterator[str]:
    """From top to bottom, then left to right; shapes without a place of their own take it from the layout, first."""
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if hasattr(shape, "shapes"):
            if depth < _DEEPEST_GROUP:
                yield from _shapes(list(shape.shapes), depth + 1)
        elif getattr(shape, "has_text_frame", False):
            text = "\n".join(line for line in _paragraphs(shape.text_frame) if line.strip())
            if text:
                yield text
        elif getattr(shape, "has_table", False):
            rows = table_lines([[cell.text for cell in row.cells] for row in shape.table.rows])
            if rows:
                yield rows
        elif getattr(shape, "has_chart", False):
            text = "\n".join(_chart(shape.chart))
            if text:
                yield text
        else:
            text = "\n".join(_diagram(shape))
            if text:
                yield text


def _paragraphs(frame: Any) -> Iterator[str]:
    for paragraph in frame.paragraphs:
        indent = "  " * (paragraph.level - 1) + "- " if paragraph.level else ""
        yield indent + paragraph.text.strip()


def _chart(chart: Any) -> Iterator[str]:
    """Title, and a line a series: `name: category value, …`."""
    if chart.has_title and chart.chart_title.has_text_frame:
        yield chart.chart_title.text_frame.text.strip()
    for plot in chart.plots:
        categories = [str(category) for category in plot.categories]
        for series in plot.series:
            values = [f"{value:g}" if isinstance(value, float) else str(value) for value in series.values]
            named = zip(categories, values, strict=False) if categories else (("", value) for value in values)
            yield f"{series.name}: " + ", ".join(f"{name} {value}".strip() for name, value in named)


def _diagram(shape: Any) -> Iterator[str]:
    """The words of a SmartArt diagram, which live in a part of their own."""
    from lxml import etree

    for element in shape.element.iter("{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"):
        relation = element.get("{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm")
        root = etree.fromstring(shape.part.related_part(relation).blob, etree.XMLParser(resolve_entities=False))
        yield from (text for node in root.iter(_A_TEXT) if (text := (node.text or "").strip()))
