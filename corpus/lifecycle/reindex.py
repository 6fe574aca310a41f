"""Another embedder or another chunker for a collection, from the text that it already holds: no source file is needed.

The new index grows in `next/`, a collection of its own beside the old one, which serves reads and takes writes all the
while. Once the two are level, the files change places in one step that a crash cannot leave half done (see `exchange`);
the old index stays in `previous/`, and switching back is the same step again. Documents that were written in between
are carried over first, in either direction, so neither switch loses any.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from thresher.corpus.access import accessible
from thresher.corpus.backends import DEFAULT_BACKENDS, Backends
from thresher.corpus.chunker import CHUNKER_VERSION, load_chunker
from thresher.corpus.collection import Collection
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.embedders.lazy import LazyEmbedder
from thresher.corpus.errors import (
    CollectionDamaged,
    CollectionLocked,
    CollectionMismatch,
    ReindexRefused,
    UnknownChunker,
)
from thresher.corpus.layout import open_record
from thresher.corpus.lifecycle.elsewhere import forget_before_removal
from thresher.corpus.lifecycle.exchange import REPLACED, discard, exchange, finish_exchange
from thresher.corpus.lifecycle.mirror import Copied, OnProgress, faithful_to, find_differences, mirror, remember
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.manifest import Manifest
from thresher.corpus.paths import NEXT, PREVIOUS, is_collection, require_collection
from thresher.corpus.record.documents import chunk_count, document_count
from thresher.corpus.record.oplog import newest_id
from thresher.corpus.record.store import Store

logger = logging.getLogger(__name__)

_PASSES = 8


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """What building the new index did.

    Attributes:
        documents, chunks: what the new index holds.
        copied: documents that were carried over by this run (an earlier one may have done others).
        embedded: passages that the embedder computed; `reused` those whose vector was known.
        passes: how often the two were compared; more than two means that documents were written meanwhile.
    """

    documents: int
    chunks: int
    copied: int
    embedded: int
    reused: int
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """What a switch did.

    Attributes:
        embedder, chunker: specs of the index that serves now.
        documents, chunks: what it holds.
        copied: documents written since the two were last level, carried over before the switch.
        removed: likewise, documents deleted.
    """

    embedder: str
    chunker: str
    documents: int
    chunks: int
    copied: int
    removed: int
    seconds: float


def build_next(
    collection: Collection,
    embedder: Embedder | None = None,
    chunker: str | None = None,
    on_progress: OnProgress | None = None,
) -> ReindexReport:
    """Build a new index beside the collection, which stays in use. An interrupted build goes on where it was.

    Passages that the new index has in common with the old one keep their vectors if the embedder is the same: another
    chunker embeds only what is new, another embedder embeds everything once.

    Args:
        embedder: default: the collection's own.
        chunker: a spec of `load_chunker`; default: the collection's own, or `structure-1` if this release lacks that.
        on_progress: called with (documents done, documents in all).

    Raises:
        ReindexRefused: there is nothing to change, or `next/` holds an index for another embedder or chunker.
        CollectionLocked: another build is running.
        UnknownChunker, EmbedderError: nothing is lost; the next run goes on from there.
    """
    wanted = collection.embedder if embedder is None else embedder
    return _build(
        collection.path, collection.manifest, collection.record, wanted, chunker, on_progress, collection.backends
    )


def reindex(
    path: Path,
    embedder: Embedder | None = None,
    chunker: str | None = None,
    on_progress: OnProgress | None = None,
    *,
    backends: Backends = DEFAULT_BACKENDS,
) -> ReindexReport:
    """`build_next` and `switch_to_next` for a collection that nobody has open. Its old embedder is not needed.

    Raises:
        CollectionNotFound, CollectionLocked, CollectionDamaged: as for `Collection.open`.
        ReindexRefused, UnknownChunker, EmbedderError: as for `build_next`.
    """
    path = Path(path)
    started = time.monotonic()
    with _alone(path) as (manifest, store):
        if embedder is None:
            embedder = LazyEmbedder(manifest.embedder)
        report = _build(path, manifest, store, embedder, chunker, on_progress, backends)
        _remember_each_other(store, path / NEXT)
        store.close()
        exchange(path, incoming=NEXT, outgoing=PREVIOUS)
    return replace(report, seconds=time.monotonic() - started)


def switch_to_next(
    path: Path, *, embedder: Embedder | None = None, backends: Backends = DEFAULT_BACKENDS
) -> SwitchReport:
    """Put the new index in the place of the old one, which goes to `previous/`. Nobody may have the collection open.

    What was written since the build is carried over first. A `previous/` of an earlier switch is removed.

    Args:
        embedder: the new index's, needed only if something was written since; default: as its manifest says.

    Raises:
        ReindexRefused: there is no new index, or it was never finished.
        CollectionLocked: somebody has the collection open.
        EmbedderError: what was written since cannot be embedded; nothing was switched.
    """
    return _switch(Path(path), NEXT, embedder, backends)


def switch_back(path: Path, *, embedder: Embedder | None = None, backends: Backends = DEFAULT_BACKENDS) -> SwitchReport:
    """Exchange the index and the one in `previous/`. Doing it twice is doing nothing. See `switch_to_next`.

    Documents that were written, changed or deleted since the switch are carried over first, so none is lost; that needs
    the previous index's embedder if something was written.

    Raises:
        ReindexRefused: there is no previous index.
        CollectionLocked, EmbedderError: as for `switch_to_next`.
        CollectionMismatch: documents were written since, and this release lacks the previous index's chunker.
    """
    return _switch(Path(path), PREVIOUS, embedder, backends)


def drop_previous(path: Path, *, backends: Backends = DEFAULT_BACKENDS) -> bool:
    """Remove the index in `previous/`; whether there was one. Nobody may have the collection open.

    What it keeps on a server is removed too, if `backends` says how to get there; else a warning is logged.
    """
    return _drop(Path(path), PREVIOUS, backends)


def discard_next(path: Path, *, backends: Backends = DEFAULT_BACKENDS) -> bool:
    """Remove the new index in `next/`, finished or not; whether there was one. See `drop_previous`."""
    return _drop(Path(path), NEXT, backends)


def _build(
    path: Path,
    manifest: Manifest,
    source: Store,
    embedder: Embedder,
    chunker: str | None,
    on_progress: OnProgress | None,
    backends: Backends,
) -> ReindexReport:
    started = time.monotonic()
    spec = load_chunker(_default_chunker(manifest) if chunker is None else chunker).version
    info = embedder.info
    if info == manifest.embedder and spec == manifest.chunker:
        raise ReindexRefused(
            f"collection {manifest.name!r} already has embedder {info.spec!r} and chunker {spec!r}: name another one, "
            f"or make its indexes anew with `thresher rebuild {manifest.name}`"
        )
    copied, passes = Copied(), 0
    with _open_next(path, manifest, embedder, spec, backends) as target:
        same_spans = spec == manifest.chunker
        same_vectors = info == manifest.embedder
        with target.bulk():
            while passes < _PASSES:
                passes += 1
                done = mirror(
                    source,
                    target,
                    same_spans=same_spans,
                    same_vectors=same_vectors,
                    on_progress=on_progress or (lambda done, total: None),
                )
                copied = _sum(copied, done)
                if not done.documents and not done.removed:
                    break
        with target.record.read() as connection:
            documents, chunks = document_count(connection), chunk_count(connection)
    return ReindexReport(
        documents, chunks, copied.documents, copied.embedded, copied.reused, passes, time.monotonic() - started
    )


def _open_next(path: Path, manifest: Manifest, embedder: Embedder, chunker: str, backends: Backends) -> Collection:
    side = path / NEXT
    discarding = f"discard it with `thresher reindex {manifest.name} --discard`"
    try:
        if not is_collection(side):
            return Collection.create(side, embedder, name=manifest.name, chunker=chunker, backends=backends)
        with _alone(side) as (there, _):
            pass  # a lost manifest is restored by looking
        if (there.embedder, there.chunker) != (embedder.info, chunker):
            raise ReindexRefused(
                f"{side} holds an index for embedder {there.embedder.spec!r} (revision {there.embedder.revision!r}) "
                f"and chunker {there.chunker!r}: go on with those, or {discarding}"
            )
        return Collection.open(side, embedder=embedder, backends=backends)
    except CollectionLocked as error:
        raise CollectionLocked(
            f"a new index for collection {manifest.name!r} is being built already: wait for that, or stop it first",
            pid=error.pid,
        ) from error
    except (CollectionDamaged, CollectionMismatch) as error:
        raise ReindexRefused(f"the index in {side} cannot be used ({error}); {discarding}") from error


def _default_chunker(manifest: Manifest) -> str:
    try:
        return load_chunker(manifest.chunker).version
    except UnknownChunker:
        return CHUNKER_VERSION


def _switch(path: Path, side: str, embedder: Embedder | None, backends: Backends) -> SwitchReport:
    started = time.monotonic()
    with _alone(path) as (manifest, store):
        if not is_collection(path / side):
            raise ReindexRefused(_nothing_to_switch_to(manifest.name, path / side))
        with _beside(path / side) as (_, beside):
            if side == NEXT and not faithful_to(beside, store):
                raise ReindexRefused(
                    f"the new index of collection {manifest.name!r} is not finished: run the same `thresher reindex` "
                    "again, which goes on where it was, or discard it with "
                    f"`thresher reindex {manifest.name} --discard`"
                )
        copied = _level(manifest, store, path / side, embedder, backends)
        report = _remember_each_other(store, path / side)
        store.close()
        exchange(path, incoming=side, outgoing=PREVIOUS)
    there, documents, chunks = report
    logger.info("collection %r switched to embedder %r, chunker %r", there.name, there.embedder.spec, there.chunker)
    return SwitchReport(
        there.embedder.spec,
        there.chunker,
        documents,
        chunks,
        copied.documents,
        copied.removed,
        time.monotonic() - started,
    )


def _level(manifest: Manifest, store: Store, side: Path, embedder: Embedder | None, backends: Backends) -> Copied:
    """Carry over to the index in `side` what it lacks of the collection."""
    with _beside(side) as (there, beside):
        same_spans = there.chunker == manifest.chunker
        found = find_differences(store, beside, same_spans=same_spans)
    if not found:
        return Copied()
    # Nothing else writes now, so one pass is enough.
    chosen = embedder or LazyEmbedder(there.embedder)
    with Collection.open(side, embedder=chosen, backends=backends) as target, target.bulk():
        return mirror(store, target, same_spans=same_spans, same_vectors=there.embedder == manifest.embedder)


def _remember_each_other(store: Store, side: Path) -> tuple[Manifest, int, int]:
    """Note in the record that leaves how far it is level with the one that comes, for the way back."""
    with _beside(side) as (there, beside):
        with beside.read() as connection:
            documents, chunks = document_count(connection), chunk_count(connection)
            newest = newest_id(connection, "chunk")
        remember(store, beside, newest)
    return there, documents, chunks


def _drop(path: Path, side: str, backends: Backends) -> bool:
    require_collection(path)
    lock = DirectoryLock(path)
    try:
        with accessible(path):
            finish_exchange(path)
            if is_collection(path / side):
                forget_before_removal(path / side, backends)
            discard(path, REPLACED)  # what a restoring that was killed may have left
            return discard(path, side)
    finally:
        lock.release()


@contextmanager
def _alone(path: Path) -> Iterator[tuple[Manifest, Store]]:
    """The manifest and record of a collection that nobody else has open; closing the record early is allowed."""
    require_collection(path)
    lock = DirectoryLock(path)
    try:
        manifest, store = open_record(path)
        with closing(store), accessible(path):
            yield manifest, store
    finally:
        lock.release()


@contextmanager
def _beside(side: Path) -> Iterator[tuple[Manifest, Store]]:
    """The manifest and record in a sub-directory, whose own lock is not taken: that of the collection guards it."""
    manifest, store = open_record(side)
    with closing(store):
        yield manifest, store


def _nothing_to_switch_to(name: str, side: Path) -> str:
    if side.name == NEXT:
        return (
            f"collection {name!r} has no new index to switch to: build one with `thresher reindex {name} "
            "--embedder SPEC` or `--chunker SPEC`"
        )
    return f"collection {name!r} has no previous index to switch back to: there was no switch, or it was dropped since"


def _sum(one: Copied, other: Copied) -> Copied:
    return Copied(
        one.documents + other.documents,
        one.removed + other.removed,
        one.embedded + other.embedded,
        one.reused + other.reused,
    )
