"""Which source a file or page is: its id, and whether the id is free.

A file that the collection already knows keeps its id, whatever root it is reached through this time; otherwise naming
a sub-folder would index its files twice. An id belongs to the source that has it for as long as that source exists: a
file until it is gone, a page or what was put until it is removed. Nothing ever takes an id away from a living source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from thresher.corpus.documents import Source
from thresher.corpus.ingestion.walk import Found, Unreadable
from thresher.corpus.ingestion.web.addresses import is_address
from thresher.corpus.loaders.base import normalise

PUT_ROOT = "put:"
"""The root of sources that no origin stands for: their documents were handed over (see `put`)."""

UPLOAD_ROOT = "upload:"
"""The root of sources whose file was handed over (see `uploads`): such a source is known by its name alone."""

LIST_PREFIX = "urls:"
"""Before the path of a file of URLs, in what users write and in the root of the pages that it lists."""


class IdTaken(Exception):
    """Another source has the id; the message is the reason shown to the user."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A page that was listed; nothing is known about it before it is fetched.

    Attributes:
        url: canonical; also the id of its source.
        size: bytes that it is expected to have, for the progress.
    """

    url: str
    size: int

    @property
    def name(self) -> str:
        """What its source is called."""
        return self.url


@dataclass(frozen=True, slots=True)
class Uploaded(Found):
    """A file that was handed over. It lies at `path` only until it is read; `name` is all that stays."""

    @property
    def uri(self) -> str:
        """The address of its documents."""
        return f"{UPLOAD_ROOT}{quote(self.name, errors='replace')}"


Entry = Found | Unreadable | Remote
Place = Path | str
"""Where a source is: a path, an address, or something that only has a name."""


def location(source: Source) -> Place:
    """Where a source is."""
    if is_address(source.id):
        return source.id
    if source.root in (PUT_ROOT, UPLOAD_ROOT):
        return f"{source.root}{source.id}"
    root = Path(source.root)
    if root.name == source.id and not os.path.isdir(root):
        return root  # the root was the file itself
    return root / source.id


def place_of(entry: Entry) -> Place:
    """Where an entry is."""
    if isinstance(entry, Uploaded):
        return f"{UPLOAD_ROOT}{normalise(entry.name)}"
    return entry.url if isinstance(entry, Remote) else entry.path


def exists(place: Place) -> bool:
    """Whether a source there is alive. What is no file lives until it is removed."""
    return not isinstance(place, Path) or os.path.lexists(place)


class Identities:
    """The ids in use, from the collection at the start and from this run."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._by_id = {source.id: source for source in sources}
        self._by_location = {location(source): source for source in self._by_id.values()}
        self._claimed: dict[str, Place] = {}
        self._documents: set[str] = set()

    def known(self) -> dict[Place, Source]:
        """Sources that the collection had at the start, by their place."""
        return self._by_location

    def previous(self, source_id: str) -> Source | None:
        """The source of that id as it was at the start."""
        return self._by_id.get(source_id)

    def claim(self, entry: Entry, root: str) -> tuple[str, str] | None:
        """The id and root for an entry, or None if this run met the same before.

        Raises:
            IdTaken: another source that still exists has the id.
        """
        at = place_of(entry)
        there = self._by_location.get(at)
        if there is not None and there.root.startswith(LIST_PREFIX) and not _list_exists(there.root):
            source_id, source_root = there.id, root  # the list was renamed or is gone: this one takes over
        elif there is not None:
            source_id, source_root = there.id, there.root
        else:
            source_id, source_root = entry.name if isinstance(entry, Remote) else normalise(entry.name), root
        other = self._claimed.get(source_id)
        if other == at:
            return None
        if other is None and there is None and (owner := self._by_id.get(source_id)) is not None:
            place = location(owner)
            # Gone means moved here: the new place takes over.
            other = place if exists(place) and place != at else None
        if other is not None:
            advice = (
                "to have both, ingest a folder that holds both" if isinstance(other, Path) else "rename one of them"
            )
            raise IdTaken(f"the id {source_id!r} already belongs to {_shown(other)}; {advice}")
        self._claimed[source_id] = at
        return source_id, source_root

    def claim_document(self, document_id: str) -> bool:
        """Take a document id; False if something else of this run has it already."""
        if document_id in self._documents:
            return False
        self._documents.add(document_id)
        return True

    def is_live(self, source_id: str) -> bool:
        """Whether a source that owns documents still exists."""
        owner = self._by_id.get(source_id)
        return source_id in self._claimed or (owner is not None and exists(location(owner)))


def _list_exists(root: str) -> bool:
    return os.path.lexists(root.removeprefix(LIST_PREFIX))


def _shown(place: Place) -> str:
    if isinstance(place, str) and place.startswith(PUT_ROOT):
        return f"documents that were put into the collection as source {place.removeprefix(PUT_ROOT)!r}"
    if isinstance(place, str) and place.startswith(UPLOAD_ROOT):
        return f"the uploaded file {place.removeprefix(UPLOAD_ROOT)!r}"
    return str(place)
