"""The files of a collection's directory: laying them out, and opening what is there."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

from thresher.corpus.access import accessible
from thresher.corpus.chunker import CHUNKER_VERSION, load_chunker
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CollectionDamaged, CollectionExists
from thresher.corpus.lexical.analyzer import ANALYZER_VERSION
from thresher.corpus.lifecycle.exchange import RESTORED, finish_exchange
from thresher.corpus.manifest import (
    RECORDED_EMBEDDER,
    RECORDED_MANIFEST,
    Manifest,
    parse_manifest,
    read_manifest,
    settle_embedder,
)
from thresher.corpus.paths import CHROMA, DATABASE, LOCK, MANIFEST, TANTIVY, sync_directory
from thresher.corpus.record.documents import document_count
from thresher.corpus.record.oplog import last_seq
from thresher.corpus.record.store import Store

_NEW = f"{DATABASE}.new"
_UNFINISHED = {_NEW, f"{_NEW}-wal", f"{_NEW}-shm", f"{_NEW}-journal"}
_LEFTOVERS = {LOCK, TANTIVY, CHROMA, f"{MANIFEST}.new", RESTORED, *_UNFINISHED}


def lay_out(path: Path, embedder: EmbedderInfo, name: str | None, chunker: str = CHUNKER_VERSION) -> Manifest:
    """Write an empty record, then the manifest. Needs the directory's lock.

    The record gets its name only when it is complete, so a `corpus.db` is never half a record. One that holds anything
    is never deleted.

    Raises:
        CollectionExists: there is a collection already (its manifest is restored if it was lost), or something else.
        CollectionDamaged: there is a record, and its manifest is lost for good.
        UnknownChunker: this release has no chunker of that spec; nothing was made.
    """
    chunker = load_chunker(chunker).version
    finish_exchange(path)
    if (path / MANIFEST).exists():
        raise CollectionExists(f"there is already a collection at {path}: open it, or choose another name")
    if (path / DATABASE).exists():
        _clear_empty_record(path)
    foreign = [p.name for p in path.iterdir() if p.name not in _LEFTOVERS]
    if foreign:
        raise CollectionExists(f"{path} is not empty ({foreign[0]} …): choose a new directory")
    manifest = Manifest(
        name=name or path.name,
        embedder=embedder,
        analyzer=ANALYZER_VERSION,
        chunker=chunker,
        created=time.time(),
    )
    for leftover in _UNFINISHED:
        (path / leftover).unlink(missing_ok=True)
    shutil.rmtree(path / RESTORED, ignore_errors=True)  # of a restoring that died before anything was in place
    with closing(Store(path / _NEW, create=True)) as store, store.write() as connection:
        connection.execute("INSERT INTO meta VALUES (?, ?)", (RECORDED_MANIFEST, manifest.to_json()))
    (path / _NEW).rename(path / DATABASE)
    sync_directory(path)
    manifest.write(path)
    return manifest


def open_record(path: Path) -> tuple[Manifest, Store]:
    """The manifest and the record of a collection; a lost manifest is restored. Needs the directory's lock.

    Raises:
        CollectionMismatch: a newer release wrote it.
        CollectionDamaged: one of the two cannot be read; says what to do.
    """
    with accessible(path):
        finish_exchange(path)
        manifest = read_manifest(path) if (path / MANIFEST).exists() else None
        store = Store(path / DATABASE)
        try:
            manifest = settle_embedder(manifest or _restored(path, store), store.meta(RECORDED_EMBEDDER), path)
        except BaseException:
            store.close()
            raise
    return manifest, store


def _clear_empty_record(path: Path) -> None:
    """Make way for a new record where a creation died before it wrote the manifest."""
    with closing(Store(path / DATABASE)) as store:
        with store.read() as connection:
            documents, used = document_count(connection), last_seq(connection) > 0
        if documents or used:
            _restored(path, store)
            raise CollectionExists(
                f"there is already a collection of {_counted(documents)} at {path}. Its {MANIFEST} was missing and has "
                "been restored: open it (on the command line, run the same command again), or choose another name"
            )
    for suffix in ("", "-wal", "-shm"):
        (path / f"{DATABASE}{suffix}").unlink(missing_ok=True)


def _restored(path: Path, store: Store) -> Manifest:
    """The manifest as the record has it, written back to its place."""
    recorded = store.meta(RECORDED_MANIFEST)
    try:
        # Which analyzer built the BM25 index is not recorded; none at all has it rebuilt.
        manifest = parse_manifest(recorded or "null", path).with_analyzer("")
    except ValueError as error:
        with store.read() as connection:
            documents = document_count(connection)
        raise CollectionDamaged(
            f"{path / MANIFEST} is missing, and {DATABASE}, which holds {_counted(documents)}, does not say what "
            f"embedded them: restore {MANIFEST} from a backup, or move the directory aside "
            f"(`mv {path} {path}.damaged`) and run `thresher ingest` again"
        ) from error
    manifest = settle_embedder(manifest, store.meta(RECORDED_EMBEDDER), path)
    manifest.write(path)
    return manifest


def _counted(documents: int) -> str:
    return "1 document" if documents == 1 else f"{documents} documents"
