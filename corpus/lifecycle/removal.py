"""Removing a collection: there, or gone; never half of it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from thresher.corpus.access import accessible
from thresher.corpus.backends import DEFAULT_BACKENDS, Backends
from thresher.corpus.lifecycle.elsewhere import forget_before_removal
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.paths import NEXT, PREVIOUS, home, is_collection, require_collection, sync_directory

_PREFIX = ".removed-"
"""No collection can have such a name, so nobody lists or opens what has it."""


def remove_collection(path: Path, *, backends: Backends = DEFAULT_BACKENDS) -> None:
    """Remove the collection in `path`, which nobody may have open. After the one rename it is gone.

    What a process that dies meanwhile leaves is removed by `clear_removed`.

    Raises:
        CollectionNotFound: there is none.
        CollectionLocked: somebody has it open.
        IndexUnreachable: a part of it is on a server that does not answer; nothing of the record was removed.
    """
    require_collection(path)
    gone = path.with_name(f"{_PREFIX}{path.name}-{uuid.uuid4().hex[:12]}")
    lock = DirectoryLock(path)
    try:
        with accessible(path):
            for side in (path, path / NEXT, path / PREVIOUS):
                if is_collection(side):
                    forget_before_removal(side, backends)
            path.rename(gone)
            sync_directory(path.parent)
    finally:
        lock.release()
    shutil.rmtree(gone, ignore_errors=True)


def clear_removed() -> None:
    """Remove what is left of collections whose removal was cut off, of all tenants."""
    for folder in _collection_folders():
        for left in folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)


def _collection_folders() -> Iterator[Path]:
    yield home() / "collections"
    yield from (home() / "tenants").glob("*/collections")
