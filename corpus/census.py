"""Counts, sizes and the state of a collection's indexes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from thresher.corpus.derived import DerivedIndexes
from thresher.corpus.errors import CorpusError
from thresher.corpus.info import CollectionStats, IndexBeside
from thresher.corpus.manifest import Manifest, read_manifest
from thresher.corpus.paths import NEXT, PREVIOUS, is_collection
from thresher.corpus.record.documents import chunk_count, document_count
from thresher.corpus.record.oplog import last_seq
from thresher.corpus.record.sources import count_by_status
from thresher.corpus.record.store import Store


def take_stats(path: Path, manifest: Manifest, store: Store, derived: DerivedIndexes) -> CollectionStats:
    """The state of a collection now."""
    backend, reason = derived.dense.backend
    progress = {"lexical": derived.lexical.progress, "dense": derived.dense.progress}
    with store.read() as connection:
        newest = last_seq(connection)
        return CollectionStats(
            documents=document_count(connection),
            chunks=chunk_count(connection),
            sources=count_by_status(connection),
            bytes_on_disk=bytes_under(path),
            embedder=manifest.embedder,
            last_seq=newest,
            applied_seq={name: own.applied_seq for name, own in progress.items()},
            pending=max(newest - own.applied_seq for own in progress.values()),
            dense=backend,
            dense_reason=reason,
            faults=derived.faults,
            chunker=manifest.chunker,
            next=_beside(path / NEXT),
            previous=_beside(path / PREVIOUS),
        )


def _beside(side: Path) -> IndexBeside | None:
    if not is_collection(side):
        return None
    try:
        manifest = read_manifest(side)
    except CorpusError:
        return IndexBeside(None, None, bytes_under(side))
    return IndexBeside(manifest.embedder.spec, manifest.chunker, bytes_under(side))


def bytes_under(path: Path) -> int:
    """The size of all files in a directory and below it, in bytes; what goes meanwhile is not counted."""
    total = 0
    # Not `Path.rglob`, which raises if a folder goes meanwhile, as a generation does that was replaced.
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = os.stat(os.path.join(folder, name))
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
