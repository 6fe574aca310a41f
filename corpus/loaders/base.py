"""What every loader gives back, the two non-failures a file can end in, and how a document gets its hash."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from urllib.parse import unquote

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


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a file, before it has an id and an address.

    Attributes:
        locator: where in the file it is, in the form in which it is appended to the source's id: empty for the file
            itself, `/inner/b.md` for a member of an archive, `#L7` for a record.
        own_id: the id that a record gives itself.
        uri: its own address (a feed's entry has one), or empty for the file's.
    """

    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    locator: str = ""
    own_id: str = ""
    uri: str = ""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record or member that was left out, and why. It takes a document's place in the stream.

    Attributes:
        fault: False if nothing is wrong with it, such as a picture in an archive; the file then does not count as
            failed, but says what it left out.
    """

    place: str
    reason: str
    fault: bool = True


# C0 controls but tab, newline and form feed (which separates pages); BOMs inside the text; lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def normalise(text: str) -> str:
    """`text` with `\\n` line ends, without control characters and lone surrogates.

    Runs of controls become one space: NULs are often separators, so the words around them must not grow together.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(" ", text))


# Spaces of all kinds, and what Unicode says to draw as nothing: zero-width characters, soft hyphens, fillers.
_BLANK = re.compile(
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff]*"
)


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: nobody would find it, and its file would count as read."""
    return _BLANK.fullmatch(text) is not None


# Part of every hash, so that those of existing collections stay true. Which chunker cut a document is no part of it:
# all documents of a collection are cut by the one that its manifest names.
_SALT = "structure-1"


def content_hash(*, uri: str, title: str, text: str, metadata: Metadata) -> str:
    """Hex SHA-256 of everything of a document that decides its indexed form."""
    fields = [_SALT, uri, title, text, dict(metadata)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def make_document(*, identifier: str, uri: str, title: str, text: str, metadata: Metadata) -> Document:
    """A document with its hash."""
    digest = content_hash(uri=uri, title=title, text=text, metadata=metadata)
    return Document(identifier, uri, title, text, metadata, digest)


def file_uri(path: Path) -> str:
    """`file:///…`, also for names that are not valid UTF-8; `path` is absolute."""
    return path.as_uri()


def clean_place(name: str, limit: int = 300) -> str:
    """A member's name as part of an id: `/` between folders, no `..`, no line breaks, no control characters."""
    parts = (" ".join(normalise(part).split()) for part in name.replace("\\", "/").split("/"))
    return "/".join(part for part in parts if part not in ("", ".", ".."))[-limit:]


def title_from_name(name: str) -> str:
    """A file's name without its suffix: it often says what the text does not."""
    return " ".join(normalise(unquote(PurePath(name).stem, errors="replace")).split())


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line, cut to `limit` characters; for titles."""
    return " ".join(text.split())[:limit].rstrip()
