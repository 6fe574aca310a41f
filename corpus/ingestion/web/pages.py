"""What a fetched page is read as, and how its validators are kept with its hash."""

from __future__ import annotations

import json
import mimetypes
import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from thresher.corpus.ingestion.web.fetch import Page, Validators
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.loaders.formats import SUFFIXES, Format

_BY_TYPE = {
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "text/markdown": ".md",
    "text/x-markdown": ".md",
    "text/x-rst": ".rst",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "text/xml": ".xml",
    "application/xml": ".xml",
    "application/rss+xml": ".rss",
    "application/atom+xml": ".atom",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/x-jsonlines": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "application/rtf": ".rtf",
    "text/rtf": ".rtf",
    "application/zip": ".zip",
    "application/x-zip-compressed": ".zip",
    "application/x-ipynb+json": ".ipynb",
    "application/mbox": ".mbox",
    "message/rfc822": ".eml",
}
# Says nothing: the address and the bytes decide.
_VAGUE = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
# Servers send source files as text/plain; these formats are what such a file may really be.
_PLAIN = frozenset({Format.TEXT, Format.MARKUP, Format.CODE, Format.CSV, Format.TSV, Format.JSON, Format.JSONL})
# Formats whose loader asks what encoding the bytes have, and to which a header's charset can be told.
_DECODED = frozenset({*_PLAIN, Format.HTML})
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")
_LONGEST_NAME = 150


def file_name(page: Page) -> str:
    """What a file with this content would be called: the last part of the address, with the suffix of its type."""
    parts = urlsplit(page.url)
    last = _UNSAFE.sub(" ", unquote(PurePosixPath(parts.path).name, errors="replace")).strip()
    name = (last if last.strip(".") else "") or parts.netloc.replace(":", " ")
    own = PurePosixPath(last).suffix.lower()
    suffix = _suffix(page.media_type, own)
    if not suffix or suffix == own or SUFFIXES.get(suffix, "") == SUFFIXES.get(own, None):
        return name[-_LONGEST_NAME:]
    stem = name[: -len(own)] if own in SUFFIXES else name
    return f"{stem[:_LONGEST_NAME]}{suffix}"


def _suffix(media_type: str, own: str) -> str:
    """The suffix for a type; empty to leave it to the address."""
    if media_type in _VAGUE:
        return "" if own in SUFFIXES else ".txt"
    if media_type in _BY_TYPE:
        return _BY_TYPE[media_type]
    if media_type.startswith("text/"):
        return own if SUFFIXES.get(own) in _PLAIN else ".txt"
    if media_type.endswith("+json"):
        return ".json"
    if media_type.endswith("+xml"):
        return ".xml"
    return mimetypes.guess_extension(media_type) or f".{media_type.rpartition('/')[2]}"


def body(page: Page, kind: Format | None) -> bytes:
    """The bytes for the loader, in UTF-8 with a mark where the header names a charset.

    A header's charset stands above what the document says of itself, but below a byte order mark and valid UTF-8.

    Raises:
        Unsupported: the bytes are not text.
    """
    if not page.charset or kind not in _DECODED:
        return page.data
    return decode(page.data, page.charset).encode("utf-8-sig", "replace")


def pack(digest: str, validators: Validators) -> str:
    """A hash and validators as one string: a source's `content_hash`, written with its documents."""
    kept = {
        name: value for name, value in (("etag", validators.etag), ("last_modified", validators.last_modified)) if value
    }
    return f"{digest} {json.dumps(kept)}" if kept else digest


def unpack(content_hash: str) -> tuple[str, Validators]:
    """The inverse of `pack`."""
    digest, _, kept = content_hash.partition(" ")
    try:
        return digest, Validators(**json.loads(kept)) if kept else Validators()
    except (ValueError, TypeError):  # written by a later release: without validators the page is fetched whole
        return digest, Validators()
