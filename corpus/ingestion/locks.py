"""Locks that the writers of one process share for one collection: who may change its ids when."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from thresher.corpus.collection import Collection
from thresher.corpus.ingestion.identity import exists, location


@dataclass(frozen=True, slots=True)
class WriterLocks:
    """Locks of one open collection.

    Attributes:
        run: held by an ingestion from its first look to its last write. Two at once would read the same files twice
            and share one embedder, so the second waits.
        ids: held while an id is looked up and then written, by ingestions and by `put_documents`, for a batch.
    """

    run: threading.Lock = field(default_factory=threading.Lock)
    ids: threading.Lock = field(default_factory=threading.Lock)


_guard = threading.Lock()
_locks: WeakKeyDictionary[Collection, WriterLocks] = WeakKeyDictionary()


def writer_locks(collection: Collection) -> WriterLocks:
    """The locks of this collection object; there is one object a process (see `DirectoryLock`)."""
    with _guard:
        return _locks.setdefault(collection, WriterLocks())


def taken_by_another(collection: Collection, wanted: Mapping[str, str]) -> dict[str, str]:
    """Of documents that sources want to write ({document id: source id}), those that another living source has.

    Returns {document id: that source's id}. Needs the `ids` lock to stay true.
    """
    owners = collection.document_owners(wanted)
    others = {owner for document_id, owner in owners.items() if owner != wanted.get(document_id)}
    living = {owner for owner in others if (row := collection.source(owner)) is not None and exists(location(row))}
    return {
        document_id: owner
        for document_id, owner in owners.items()
        if owner in living and owner != wanted.get(document_id)
    }
