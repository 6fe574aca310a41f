"""Bytes to parts, by format, in this process. The formats of `ISOLATED` come here inside the child process only."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, Extracted, NoText, Part, Unsupported, clean_place, title_from_name
from thresher.corpus.loaders.formats import Format, format_of
from thresher.corpus.loaders.limits import DEEPEST, LimitReached, Limits
from thresher.corpus.loaders.sniff import sniff

_CONTAINERS = frozenset({Format.ZIP, Format.MAIL, Format.MBOX})


def read_parts(data: bytes, kind: Format, name: str, limits: Limits) -> Iterator[Part | BadRecord]:
    """The documents in a file's bytes.

    Args:
        kind: as `sniff` says.
        name: the file's own name; it decides about language, and is no title.

    Raises:
        NoText, Unsupported, LoaderError: as the format's loader does.
    """
    refuse_empty(data)
    if kind is Format.ZIP:
        from thresher.corpus.loaders.archive import package_kind

        kind = package_kind(data)
    if kind in _CONTAINERS and limits.depth >= DEEPEST:
        raise Unsupported(f"a container inside {DEEPEST} others is not opened; unpack it")
    match kind:
        case Format.ZIP:
            from thresher.corpus.loaders.archive import zip_parts

            yield from zip_parts(data, limits)
        case Format.MAIL:
            from thresher.corpus.loaders.mail import mail_parts

            yield from mail_parts(data, limits)
        case Format.MBOX:
            from thresher.corpus.loaders.mailbox import mailbox_parts

            with limits.inside():
                yield from mailbox_parts(io.BytesIO(data), lambda raw: read_parts(raw, Format.MAIL, "", limits))
        case Format.FEED:
            from thresher.corpus.loaders.feed import feed_parts

            yield from feed_parts(data)
        case Format.JSONL:
            from thresher.corpus.loaders.records import jsonl_parts

            yield from jsonl_parts(io.BytesIO(data))
        case Format.JSON:
            from thresher.corpus.loaders.records import json_parts

            yield from json_parts(data)
        case Format.PDF:
            from thresher.corpus.loaders.pdf import pdf_parts

            yield from pdf_parts(data, limits)
        case Format.IMAGE:
            from thresher.corpus.loaders.ocr import image_part

            yield image_part(data, limits)
        case Format.PLUGIN:
            from thresher.corpus.loaders.plugin import plugin_parts

            yield from plugin_parts(data, name)
        case _:
            extracted = _extract(data, kind, name)
            yield Part(extracted.text, extracted.title, extracted.metadata)


def _extract(data: bytes, kind: Format, name: str) -> Extracted:
    """The formats that hold one document."""
    match kind:
        case Format.HTML:
            from thresher.corpus.loaders.html import extract_html

            return extract_html(data)
        case Format.DOCX:
            from thresher.corpus.loaders.docx import extract_docx

            return extract_docx(data)
        case Format.PPTX:
            from thresher.corpus.loaders.pptx import extract_pptx

            return extract_pptx(data)
        case Format.XLSX:
            from thresher.corpus.loaders.xlsx import extract_xlsx

            return extract_xlsx(data)
        case Format.ODF:
            from thresher.corpus.loaders.odf import extract_odf

            return extract_odf(data)
        case Format.RTF:
            from thresher.corpus.loaders.rtf import extract_rtf

            return extract_rtf(data)
        case Format.LEGACY:
            from thresher.corpus.loaders.legacy import refuse_legacy

            raise refuse_legacy(data, name)
        case Format.NOTEBOOK:
            from thresher.corpus.loaders.notebook import extract_notebook

            return extract_notebook(data)
        case Format.XML:
            from thresher.corpus.loaders.xml import extract_xml

            return extract_xml(data)
        case Format.CODE:
            from thresher.corpus.loaders.code import extract_code

            return extract_code(data, name)
        case Format.CSV | Format.TSV:
            from thresher.corpus.loaders.table import extract_table

            return extract_table(data, delimiter="\t" if kind is Format.TSV else None)
        case _:
            from thresher.corpus.loaders.text import extract_text

            return extract_text(data, headings=kind is Format.MARKUP)


def read_member(data: bytes, name: str, limits: Limits, kind: Format | None = None) -> Iterator[Part | BadRecord]:
    """The documents of a file inside another one, as parts of the outer one: `/name` leads their locators.

    What cannot be read comes out as `BadRecord`; only limits of the whole file are raised.
    """
    place = clean_place(name) or "unnamed"
    try:
        named = format_of(PurePosixPath(place)) if kind is None else kind
        for item in read_parts(data, sniff(data, named, place), place, limits):
            yield nest(item, f"/{place}", title=title_from_name(place))
    except (LimitReached, MemoryError):
        raise
    except (NoText, Unsupported) as error:
        yield BadRecord(place, str(error), fault=False)
    except LoaderError as error:
        yield BadRecord(place, str(error))
    except Exception as error:  # whatever a parser raises is this member's failure
        yield BadRecord(place, f"the parser failed: {type(error).__name__}: {error}"[:500])


def nest(item: Part | BadRecord, prefix: str, *, title: str = "") -> Part | BadRecord:
    """An item of an inner file as one of the outer: its locator, or its place, begins with `prefix`."""
    if isinstance(item, BadRecord):
        inner = prefix.lstrip("/#")
        return replace(item, place=f"{inner}/{item.place}" if item.place else inner)
    locator = f"#{item.own_id}" if item.own_id else item.locator
    return replace(item, locator=prefix + locator, own_id="", title=item.title or title)


def refuse_empty(data: bytes) -> None:
    """Raises NoText if there is nothing in `data`."""
    if not data:
        raise NoText("the file is empty")
    if data.isspace():
        raise NoText("the file holds only whitespace")


def distinct(items: Iterable[Part | BadRecord]) -> Iterator[Part | BadRecord]:
    """`items` with locators that occur twice told apart: `/a.pdf`, `/a.pdf~2`. Records' own ids are left alone."""
    seen: dict[str, int] = {}
    for item in items:
        if isinstance(item, Part) and not item.own_id:
            locator, count = item.locator, seen.get(item.locator, 0) + 1
            seen[locator] = count
            while count > 1 and f"{locator}~{count}" in seen:
                count += 1
            if count > 1:
                item = replace(item, locator=f"{locator}~{count}")
                seen[locator], seen[item.locator] = count, 1
        yield item
