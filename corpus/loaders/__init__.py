"""Loaders: files in, documents out. One small module a format; HTML and PDF are parsed in a child process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from thresher.corpus.documents import Document
from thresher.corpus.loaders.base import Extracted, NoText, Unsupported, file_uri, make_document, normalise
from thresher.corpus.loaders.formats import ISOLATED, SUFFIXES, Format, format_of
from thresher.corpus.loaders.isolation import ParserProcess
from thresher.corpus.loaders.records import BadRecord

__all__ = ["SUFFIXES", "BadRecord", "Extracted", "NoText", "ParserProcess", "Unsupported", "load_file"]


def load_file(
    path: Path, *, source_id: str, data: bytes | None = None, parser: ParserProcess | None = None
) -> Iterator[Document | BadRecord]:
    """The documents of a file: one, or one a record for JSONL and for a JSON list.

    Args:
        source_id: becomes the document's id, or the prefix of ids for records that have none.
        data: the file's bytes if the caller has them already; JSONL is always read from disk, as a stream.
        parser: the child process for HTML and PDF, when many files share one.

    Raises:
        Unsupported: no loader reads this kind of file.
        NoText: the file holds no text.
        LoaderError: it is damaged, encrypted, or hit a limit; the message is for people.
    """
    kind = format_of(path)
    if kind is Format.JSONL:
        from thresher.corpus.loaders.records import load_jsonl

        yield from load_jsonl(path, source_id=source_id)
        return
    if data is None:
        data = path.read_bytes()
    if data.startswith(b"%PDF-"):
        kind = Format.PDF
    if kind is Format.JSON:
        from thresher.corpus.loaders.records import load_json

        yield from load_json(data, path, source_id=source_id)
        return
    extracted = _extract(data, kind, parser)
    yield make_document(
        identifier=normalise(source_id),
        uri=file_uri(path),
        title=extracted.title or _title_from_name(path),
        text=extracted.text,
        metadata=extracted.metadata,
    )


def _extract(data: bytes, kind: Format, parser: ParserProcess | None) -> Extracted:
    if kind in ISOLATED:
        if not data.strip():
            raise NoText("the file is empty" if not data else "the file holds only whitespace")
        if parser is not None:
            return parser.extract(data, kind)
        with ParserProcess() as own:
            return own.extract(data, kind)
    if kind in (Format.CSV, Format.TSV):
        from thresher.corpus.loaders.table import extract_table

        return extract_table(data, delimiter="\t" if kind is Format.TSV else None)
    from thresher.corpus.loaders.text import extract_text

    return extract_text(data, headings=kind is Format.MARKUP)


def _title_from_name(path: Path) -> str:
    """The file's name without its suffix: it often says what the text does not."""
    return " ".join(normalise(unquote(path.stem, errors="replace")).split())
