"""Counts, sizes and the state of a collection's indexes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from thresher.corpus.errors import CorpusError
from thresher.corpus.info import CollectionStats, IndexBeside
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.manifest import Manifest, read_manifest
from thresher.corpus.paths import NEXT, PREVIOUS, is_collection
from thresher.corpus.record.documents import chunk_count, document_count
from thresher.corpus.record.oplog import last_seq
from thresher.corpus.record.sources import count_by_status
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.managed import ManagedDense


def take_stats(
    path: Path, manifest: Manifest, store: Store, lexical: ManagedLexical, dense: ManagedDense
) -> CollectionStats:
    """The state of a collection now."""
    backend, reason = dense.backend
    progress = {"lexical": lexical.progress, "dense": dense.progress}
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
            faults=tuple(
                f"{name}: {fault}"
                for name, fault in (("lexical", lexical.progress.fault), ("dense", dense.fault))
                if fault
            ),
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
    """The size of all files in a directory and below it."""
    total = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file():
                total += file.stat().st_size
    return total
