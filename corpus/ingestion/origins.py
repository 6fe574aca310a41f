"""Where documents come from: a folder, a file, a glob pattern, a URL, a list of URLs.

An origin says what is there now, and which of the sources that a collection already has it answers for: those are what
`sync` may remove.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Source
from thresher.corpus.ingestion.identity import LIST_PREFIX, Entry, Place, Remote
from thresher.corpus.ingestion.patterns import Pattern, is_pattern, split_pattern
from thresher.corpus.ingestion.walk import Found, RootError, Unreadable, resolve_root, walk
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical, is_address
from thresher.corpus.loaders.base import Unsupported, normalise
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.record.origins import add_origins, load_origins

TYPICAL_PAGE = 64 * 1024
"""Bytes that a page counts for in the progress before its size is known."""

_LONGEST_LIST = 64 * 1024 * 1024


class Origin(Protocol):
    """Something that documents can be read from, checked and ready."""

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def root(self) -> str:
        """What the sources that come from here say as their root."""

    @property
    def spec(self) -> str:
        """What `parse_origin` makes the same of in any working directory."""

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        """What is there now. `without` is a directory that is not entered; longer files than `largest` are skipped."""

    def covers(self, place: Place, source: Source) -> bool:
        """Whether a source at that place, if it is not among the entries, is gone from here."""

    def nothing(self) -> str:
        """What it means that there are no entries, as the beginning of a sentence."""


@dataclass(frozen=True, slots=True)
class PathOrigin:
    """A folder or a file. `path` is absolute, with symbolic links resolved."""

    name: str
    path: Path

    @property
    def root(self) -> str:
        """The path itself."""
        return str(self.path)

    @property
    def spec(self) -> str:
        """The path."""
        return str(self.path)

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        """See `walk`."""
        return list(walk(self.path, without=without, largest=largest))

    def covers(self, place: Place, source: Source) -> bool:
        """Everything whose file would lie here, whatever root it was ingested by."""
        return isinstance(place, Path) and (place.is_relative_to(self.path) or source.root == self.root)

    def nothing(self) -> str:
        """See `Origin`."""
        return f"{self.name} holds no file"


@dataclass(frozen=True, slots=True)
class GlobOrigin:
    """The files below a folder that match a pattern. `path` is the fixed part, resolved."""

    name: str
    path: Path
    pattern: Pattern

    @property
    def root(self) -> str:
        """The fixed part: a folder and the patterns below it share their sources."""
        return str(self.path)

    @property
    def spec(self) -> str:
        """The pattern, from the resolved fixed part."""
        return str(self.path.joinpath(*self.pattern.parts))

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        """What matches. A folder that cannot be listed counts if something below it could match."""
        return [
            entry
            for entry in walk(self.path, without=without, largest=largest)
            if self.pattern.matches(entry.name)
            or (isinstance(entry, Unreadable) and self.pattern.may_match_below(entry.name))
        ]

    def covers(self, place: Place, source: Source) -> bool:
        """Everything whose file would match, whatever root it was ingested by."""
        if not isinstance(place, Path) or not place.is_relative_to(self.path):
            return False
        return self.pattern.matches(place.relative_to(self.path).as_posix())

    def nothing(self) -> str:
        """See `Origin`."""
        return f"no file matches {self.name}"


@dataclass(frozen=True, slots=True)
class UrlOrigin:
    """One page."""

    name: str
    url: str

    @property
    def root(self) -> str:
        """The address."""
        return self.url

    @property
    def spec(self) -> str:
        """The address."""
        return self.url

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        """The page."""
        return [Remote(self.url, TYPICAL_PAGE)]

    def covers(self, place: Place, source: Source) -> bool:
        """The page."""
        return place == self.url

    def nothing(self) -> str:
        """See `Origin`."""
        return f"{self.name} is not there any more"


@dataclass(frozen=True, slots=True)
class UrlListOrigin:
    """The pages that a file lists. `path` is the file, resolved."""

    name: str
    path: Path
    urls: tuple[str, ...] = field(repr=False)

    @property
    def root(self) -> str:
        """The list: a page belongs to the list that first named it."""
        return f"{LIST_PREFIX}{self.path}"

    @property
    def spec(self) -> str:
        """The list."""
        return self.root

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        """The pages, each once."""
        return [Remote(url, TYPICAL_PAGE) for url in self.urls]

    def covers(self, place: Place, source: Source) -> bool:
        """Every page that came from this list."""
        return source.root == self.root

    def nothing(self) -> str:
        """See `Origin`."""
        return f"{self.path} lists no page that is there"


def parse_origin(origin: str | Path) -> Origin:
    """What the user named.

    In this order: `http://…` and `https://…` are a page; `urls:FILE` is a list of pages, one a line, with `#` comments;
    a path that exists is a folder or file, even with wildcards in its name; anything else with `*`, `?` or `[` is a
    pattern. A `Path` is a folder, a file or a pattern.

    Raises:
        RootError: it is not there, cannot be read, or a line of the list is no URL. Nothing was changed.
    """
    text = os.fspath(origin)
    if not text.strip():  # as a path it would be the working directory, which nobody means by an unset variable
        raise RootError("the name of what to read is empty. Nothing was changed; `.` is the working directory")
    if isinstance(origin, str) and is_address(origin.strip()):
        try:
            return UrlOrigin(origin, canonical(origin))
        except InvalidAddress as error:
            raise RootError(f"{error}. Nothing was changed") from error
    if isinstance(origin, str) and origin.startswith(LIST_PREFIX):
        return _url_list(origin)
    if not is_pattern(text) or os.path.lexists(Path(text).expanduser()):
        return PathOrigin(text, resolve_root(Path(text)))
    pattern = split_pattern(text)
    return GlobOrigin(text, resolve_root(pattern.fixed), pattern)


def _url_list(origin: str) -> UrlListOrigin:
    path = resolve_root(Path(origin.removeprefix(LIST_PREFIX)))
    if not path.is_file() or path.stat().st_size > _LONGEST_LIST:
        raise RootError(f"{path} is not a list of URLs: it must be a file with one URL a line. Nothing was changed")
    try:
        lines = decode(path.read_bytes()).splitlines()
    except (OSError, Unsupported) as error:
        raise RootError(f"cannot read the list {path}: {error}. Nothing was changed") from error
    urls: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        # A fragment belongs to a URL, so a comment needs a space before it.
        text = "" if line.lstrip().startswith("#") else line.partition(" #")[0].partition("\t#")[0].strip()
        if not text:
            continue
        try:
            urls[normalise(canonical(text))] = None
        except InvalidAddress as error:
            raise RootError(f"line {number} of {path}: {error}. Nothing was changed; correct the line") from error
    return UrlListOrigin(origin, path, tuple(urls))


def remember_origins(collection: Collection, origins: Sequence[Origin]) -> None:
    """Have the collection know where it was read from, so that it can be brought up to date without being told."""
    specs = [origin.spec for origin in origins]
    with collection.record.read() as connection:
        if set(specs) <= set(load_origins(connection)):
            return
    with collection.record.write() as connection:
        add_origins(connection, specs)


def known_origins(collection: Collection) -> list[str]:
    """What the collection was read from, as `parse_origin` takes it, in the order in which it was first named.

    A file or page of its own is left out where a folder that is named too has it.
    """
    with collection.record.read() as connection:
        specs = load_origins(connection)
    folders = [Path(spec) for spec in specs if os.path.isdir(spec)]
    return [spec for spec in specs if not any(folder in Path(spec).parents for folder in folders)]


def is_present(entry: Entry) -> bool:
    """Whether the entry shows that something is there; an unreadable folder shows nothing."""
    return isinstance(entry, Found | Remote)
