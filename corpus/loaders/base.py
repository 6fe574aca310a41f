"""What every loader gives back, the two non-failures a file can end in, and how a document gets its hash."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.documents import Document, Metadata
from thresher.corpus.errors import LoaderError


class NoText(LoaderError):
    """The file is readable but holds no text; its source ends as `no_text`, not as a failure."""

    code = "no_text"


class Unsupported(LoaderError):
    """No loader reads this kind of file; its source ends as `skipped`."""

    code = "unsupported_file"


@dataclass(frozen=True, slots=True)
class Extracted:
    """The plain text of one file.

    Attributes:
        title: empty if the file has none of its own; the caller then falls back to the file's name.
    """

    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)


# C0 controls but tab, newline and form feed (which separates pages); BOMs inside the text; lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def normalise(text: str) -> str:
    """`text` with `\\n` line ends, without control characters and lone surrogates.

    Runs of controls become one space: NULs are often separators, so the words around them must not grow together.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(" ", text))


def content_hash(*, uri: str, title: str, text: str, metadata: Metadata) -> str:
    """Hex SHA-256 of everything that decides the indexed form, the chunker's version included."""
    fields = [CHUNKER_VERSION, uri, title, text, dict(metadata)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def make_document(*, identifier: str, uri: str, title: str, text: str, metadata: Metadata) -> Document:
    """A document with its hash."""
    digest = content_hash(uri=uri, title=title, text=text, metadata=metadata)
    return Document(identifier, uri, title, text, metadata, digest)


def file_uri(path: Path, fragment: str = "") -> str:
    """`file:///…`, also for names that are not valid UTF-8."""
    return path.as_uri() + (f"#{quote(fragment, safe='', errors='replace')}" if fragment else "")


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line, cut to `limit` characters; for titles."""
    return " ".join(text.split())[:limit].rstrip()
