"""Erasing for good: after it, no byte of what was deleted is left in any file of a collection's directory.

Deleting takes a document out of reach at once, but its bytes stay in free pages and the write-ahead log of the record,
in segments of the trigram and BM25 indexes, in Chroma's files, in generations put aside, and in the indexes beside
(`next/`, `previous/`). So everything derived is built anew from what is live, the record is rewritten page by page, and
whatever cannot be rewritten is removed.

Not covered, because they lie elsewhere: snapshots and exported files, traces of searches, backups, the files that were
ingested, and blocks that the file system or the disk has freed but not overwritten.
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import closing
from pathlib import Path
from threading import RLock

from thresher.corpus.access import accessible
from thresher.corpus.backends import Backends
from thresher.corpus.errors import (
    CollectionClosed,
    CollectionDamaged,
    CollectionLocked,
    CollectionUnavailable,
    IndexUnreachable,
)
from thresher.corpus.info import RebuildReport
from thresher.corpus.layout import open_record
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.lifecycle.elsewhere import forget_elsewhere
from thresher.corpus.lifecycle.exchange import REPLACED, RESTORED, discard
from thresher.corpus.lifecycle.mirror import copy_sources, find_differences
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.paths import CHROMA, NEXT, PREVIOUS, TANTIVY, is_collection
from thresher.corpus.record.change import Change
from thresher.corpus.record.documents import chunk_count, keys_of
from thresher.corpus.record.oplog import Progress, save_progress
from thresher.corpus.record.schema import rebuild_trigrams
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.local import IDENTITY as LOCAL
from thresher.corpus.vectors.managed import ManagedDense
from thresher.corpus.vectors.residence import DENSE_HOME

logger = logging.getLogger(__name__)


def erase(
    path: Path,
    chunker: str,
    store: Store,
    lexical: ManagedLexical,
    dense: ManagedDense,
    writing: RLock,
    backends: Backends,
) -> RebuildReport:
    """Erase what was deleted from an open collection. Writes wait meanwhile, searches go on.

    The rows of sources that have no document left go too, so a file that was removed from the collection but still
    exists is indexed again by the next ingestion of its folder.

    Raises:
        CollectionLocked: a new index is being built beside it, which cannot be erased meanwhile.
        CollectionDamaged: an index beside it cannot be read; says how to remove that.
        IndexUnreachable: a server that holds vectors or texts does not answer. Run it again when that does.
        CollectionUnavailable: something keeps old bytes: a search that is under way, or a directory that cannot be
            removed. Everything else is erased; run it again.
    """
    started = time.monotonic()
    with writing, accessible(path):
        with store.write() as connection:
            connection.execute(
                "DELETE FROM sources WHERE status = 'indexed' "
                "AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_id = sources.id)"
            )
        for name in (RESTORED, REPLACED):
            discard(path, name)
        for name in (NEXT, PREVIOUS):
            if is_collection(path / name):
                _erase_beside(path / name, store, chunker, backends)
            else:
                shutil.rmtree(path / name, ignore_errors=True)
        with store.write() as connection:
            rebuild_trigrams(connection)
        lexical.rebuild()
        unreachable = _renew_dense(path / CHROMA, store, dense)
        with store.write() as connection:
            # Every index was just built from the live rows, so none has a removal left to follow.
            connection.execute("DELETE FROM tombstones")
        store.vacuum()
        for root, generation in ((path / TANTIVY, lexical.progress), (path / CHROMA, dense.progress)):
            _check_removed(root, generation.generation)
        if unreachable is not None:
            raise unreachable
        with store.read() as connection:
            chunks = chunk_count(connection)
    return RebuildReport(
        chunks=chunks,
        seconds=time.monotonic() - started,
        generations={"lexical": lexical.progress.generation, "dense": dense.progress.generation},
    )


def _erase_beside(side: Path, live: Store, chunker: str, backends: Backends) -> None:
    """Take out of an index beside what the collection no longer has; its derived indexes are built when it is opened.

    A document that changed is taken out as well: the next pass of a reindex, or the switch back, brings it again.
    """
    try:
        lock = DirectoryLock(side)
    except CollectionLocked as error:
        raise CollectionLocked(
            f"a new index is being built in {side}, which holds copies of what is to be erased: run this again when "
            "that has ended, or stop it first",
            pid=error.pid,
        ) from error
    try:
        try:
            manifest, store = open_record(side)
        except CollectionDamaged as error:
            option = "--discard" if side.name == NEXT else "--drop-previous"
            raise CollectionDamaged(
                f"the index in {side} cannot be read, so it cannot be told what of it must be erased ({error}): remove "
                f"it with `thresher reindex {side.parent.name} {option}`, then run this again"
            ) from error
        with closing(store):
            found = find_differences(live, store, same_spans=manifest.chunker == chunker)
            with store.write() as connection:
                change = Change(connection, "erase")
                change.remove(keys_of(connection, [*found.gone, *found.changed]))
                change.finish()
                connection.execute("DELETE FROM tombstones")
                connection.execute("DELETE FROM derived")
                rebuild_trigrams(connection)
            copy_sources(live, store)
            store.vacuum()
        forget_elsewhere(side, backends)
        for derived in (TANTIVY, CHROMA):
            if (side / derived).exists():
                shutil.rmtree(side / derived)
    finally:
        lock.release()


def _renew_dense(root: Path, store: Store, dense: ManagedDense) -> IndexUnreachable | None:
    """A new generation of live vectors only; where none can be built, no generation at all: exact search serves.

    Returns the error if the old one is on a server that does not answer: it is still there then.
    """
    try:
        dense.rebuild()
        dense.rest()  # closing clears what its files hold beside live vectors
    except CollectionClosed:
        raise
    except Exception as error:
        if isinstance(error, IndexUnreachable) and store.meta(DENSE_HOME) not in (None, LOCAL):
            return error
        logger.warning("the Chroma index could not be rebuilt (%s); it is removed, and exact search serves", error)
        dense.progress = Progress(dense.progress.generation + 1, 0, f"it could not be rebuilt ({error})")
        with store.write() as connection:
            save_progress(connection, "dense", dense.progress)
        for entry in root.iterdir() if root.is_dir() else ():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    return None


def _check_removed(root: Path, generation: int) -> None:
    left = [p for p in root.iterdir() if p.is_dir() and p.name != str(generation)] if root.is_dir() else []
    if left:
        raise CollectionUnavailable(
            f"{left[0]} could not be removed, and may hold deleted text or vectors: check its permissions, remove it, "
            "and run this again"
        )
