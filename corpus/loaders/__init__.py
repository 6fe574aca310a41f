"""Loaders: files in, documents out. One small module a format.

Read are text, markdown and reStructuredText, source code, HTML, PDF, Word (docx), PowerPoint (pptx), Excel (xlsx),
OpenDocument, RTF, CSV and TSV, JSON and JSONL, mail (eml, mbox), Jupyter notebooks, XML, RSS and Atom, and ZIP archives
of all these; pictures and scans with the `ocr` extra; and what installed packages add. What the bytes say wins over the
name. All but plain text, code, tables and JSON is parsed in a child process with limits on time and memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path, PurePath
from typing import IO
from urllib.parse import quote

from thresher.corpus.documents import Document
from thresher.corpus.loaders.base import (
    BadRecord,
    Extracted,
    NoText,
    Part,
    Unsupported,
    file_uri,
    is_blank,
    make_document,
    normalise,
    title_from_name,
)
from thresher.corpus.loaders.dispatch import distinct, read_parts, refuse_empty
from thresher.corpus.loaders.formats import ISOLATED, STREAMED, SUFFIXES, Format, format_of
from thresher.corpus.loaders.isolation import ParserProcess
from thresher.corpus.loaders.limits import Limits
from thresher.corpus.loaders.sniff import sniff

__all__ = [
    "STREAMED",
    "SUFFIXES",
    "BadRecord",
    "Extracted",
    "Format",
    "NoText",
    "ParserProcess",
    "Unsupported",
    "format_of",
    "load_bytes",
    "load_file",
    "load_jsonl_block",
]

_BLANK = "its text holds only characters that cannot be seen"


def load_file(
    path: Path,
    *,
    source_id: str,
    uri: str | None = None,
    data: bytes | None = None,
    parser: ParserProcess | None = None,
) -> Iterator[Document | BadRecord]:
    """The documents of a file: one, or several from records, mailboxes, feeds, archives and mails with attachments.

    Args:
        source_id: becomes the document's id, or the prefix of ids for records that have none.
        uri: the address of the documents; None for the path's.
        data: the file's bytes if the caller has them already; formats in `STREAMED` are read from disk, as a stream.
        parser: the child process, when many files share one.

    Raises:
        Unsupported: no loader reads this kind of file.
        NoText: the file holds no text.
        LoaderError: it is damaged, encrypted, or hit a limit; the message is for people.
    """
    kind = format_of(path)
    uri = uri or file_uri(path)
    if kind in STREAMED:
        with path.open("rb") as file:
            yield from _stream(file, kind, path.name, source_id=source_id, uri=uri, parser=parser)
        return
    if data is None:
        data = path.read_bytes()
    yield from load_bytes(data, path.name, source_id=source_id, uri=uri, kind=kind, parser=parser)


def load_bytes(
    data: bytes,
    name: str,
    *,
    source_id: str,
    uri: str,
    kind: Format | None = None,
    parser: ParserProcess | None = None,
) -> Iterator[Document | BadRecord]:
    """As `load_file`, of bytes that came from elsewhere.

    Args:
        name: what the file would be called; it decides the format, unless the bytes contradict.
        uri: the address of the documents; parts of the file get it with a fragment.
        kind: overrides the format that the name says.

    Raises:
        Unsupported, NoText, LoaderError: as for `load_file`.
    """
    refuse_empty(data)
    kind = sniff(data, format_of(PurePath(name)) if kind is None else kind, name)
    if kind in STREAMED:
        yield from _stream(io.BytesIO(data), kind, name, source_id=source_id, uri=uri, parser=parser)
        return
    if kind not in ISOLATED:
        yield from _documents(read_parts(data, kind, name, Limits()), name, source_id, uri)
        return
    with nullcontext(parser) if parser is not None else ParserProcess() as process:
        yield from _documents(process.parts(data, kind, name), name, source_id, uri)


def load_jsonl_block(
    data: bytes, name: str, *, source_id: str, uri: str, first_line: int
) -> Iterator[Document | BadRecord]:
    """The documents of some lines of a JSONL file, just as reading all of it gives them; see `load_bytes`."""
    from thresher.corpus.loaders.records import jsonl_parts

    yield from _documents(jsonl_parts(io.BytesIO(data), first_line), name, source_id, uri)


def _stream(
    file: IO[bytes], kind: Format, name: str, *, source_id: str, uri: str, parser: ParserProcess | None
) -> Iterator[Document | BadRecord]:
    if kind is Format.JSONL:
        from thresher.corpus.loaders.records import jsonl_parts

        yield from _documents(jsonl_parts(file), name, source_id, uri)
        return
    from thresher.corpus.loaders.mailbox import mailbox_parts

    with nullcontext(parser) if parser is not None else ParserProcess() as process:
        parts = mailbox_parts(file, lambda raw: process.parts(raw, Format.MAIL, name))
        yield from _documents(parts, name, source_id, uri)


def _documents(
    items: Iterable[Part | BadRecord], name: str, source_id: str, uri: str
) -> Iterator[Document | BadRecord]:
    for item in distinct(items):
        if isinstance(item, BadRecord):
            yield item
            continue
        if is_blank(item.text):
            if not item.locator and not item.own_id:
                raise NoText(_BLANK)
            yield BadRecord((item.own_id or item.locator).lstrip("/#"), _BLANK, fault=False)
            continue
        fragment = item.own_id or item.locator.lstrip("/#")
        yield make_document(
            identifier=item.own_id or normalise(source_id + item.locator),
            uri=item.uri or (f"{uri}#{quote(fragment, safe='', errors='replace')}" if fragment else uri),
            title=item.title or ("" if item.locator.startswith("#") or item.own_id else title_from_name(name)),
            text=item.text,
            metadata=item.metadata,
        )
