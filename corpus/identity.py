"""Which source a file is: its id, and whether the id is free.

A file that the collection already knows keeps its id, whatever root it is reached through this time; otherwise naming
a sub-folder would index its files twice. An id belongs to the file that has it for as long as that file exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from thresher.corpus.documents import Source
from thresher.corpus.loaders.base import normalise
from thresher.corpus.walk import Found, Unreadable


class IdTaken(Exception):
    """Another file has the id; the message is the reason shown to the user."""


def location(source: Source) -> Path:
    """The file of a source."""
    root = Path(source.root)
    if root.name == source.id and not os.path.isdir(root):
        return root  # the root was the file itself
    return root / source.id


class Identities:
    """The ids in use, from the collection at the start and from this run."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._by_id = {source.id: source for source in sources}
        self._by_location = {location(source): source for source in self._by_id.values()}
        self._claimed: dict[str, Path] = {}
        self._documents: set[str] = set()

    def known(self) -> dict[Path, Source]:
        """Sources that the collection had at the start, by the place of their file."""
        return self._by_location

    def previous(self, source_id: str) -> Source | None:
        """The source of that id as it was at the start."""
        return self._by_id.get(source_id)

    def claim(self, found: Found | Unreadable, root: Path) -> tuple[str, str] | None:
        """The id and root for a file, or None if this run met the same file before.

        Raises:
            IdTaken: another file that still exists has the id.
        """
        there = self._by_location.get(found.path)
        source_id, source_root = (there.id, there.root) if there else (normalise(found.name), str(root))
        other = self._claimed.get(source_id)
        if other == found.path:
            return None
        if other is None and there is None and (owner := self._by_id.get(source_id)) is not None:
            place = location(owner)
            # Gone means moved here: the new place takes over.
            other = place if os.path.lexists(place) and place != found.path else None
        if other is not None:
            raise IdTaken(
                f"the id {source_id!r} already belongs to {other}; to have both, ingest a folder that holds both"
            )
        self._claimed[source_id] = found.path
        return source_id, source_root

    def claim_document(self, document_id: str) -> bool:
        """Take a document id; False if something else of this run has it already."""
        if document_id in self._documents:
            return False
        self._documents.add(document_id)
        return True

    def is_live(self, source_id: str) -> bool:
        """Whether the file of a source that owns documents still exists."""
        owner = self._by_id.get(source_id)
        return source_id in self._claimed or (owner is not None and os.path.lexists(location(owner)))
