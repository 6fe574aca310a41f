"""Snapshots: a consistent, checked copy of a collection's record while it is in use, and a collection out of one again.

A snapshot is a directory: `corpus.db` (the record, complete, without freed pages), `manifest.json`, and `snapshot.json`
with format, counts and the size and SHA-256 of each file. It gets its name when it is complete and synced. The derived
indexes are not in it: they are several times as large to copy safely, may be damaged, and are rebuilt from the record.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Container, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thresher.corpus.access import accessible, refusal
from thresher.corpus.collection import Collection
from thresher.corpus.embedders.lazy import LazyEmbedder
from thresher.corpus.errors import CollectionExists, CollectionMismatch, CorpusError, EmbedderError, TransferError
from thresher.corpus.layout import open_record
from thresher.corpus.lexical.managed import LEXICAL_HOME
from thresher.corpus.lifecycle.exchange import REPLACED, RESTORED, discard, exchange, finish_exchange
from thresher.corpus.lifecycle.mirror import MIRRORS
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.manifest import RECORDED_EMBEDDER, RECORDED_MANIFEST, read_manifest
from thresher.corpus.paths import DATABASE, LOCK, MANIFEST, is_collection, replace_file, sync_directory
from thresher.corpus.record.collection_id import COLLECTION_ID
from thresher.corpus.record.documents import chunk_count, document_count
from thresher.corpus.record.oplog import Progress, save_progress
from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.residence import DENSE_HOME

FORMAT = "thresher-snapshot"
VERSION = 1
CONTENTS = "snapshot.json"

_OWN = (MIRRORS, COLLECTION_ID, DENSE_HOME, LEXICAL_HOME)
"""Rows of `meta` that are true of one record only, not of a copy of it."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """A snapshot that was taken. `bytes` of all its files."""

    documents: int
    chunks: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A snapshot that was restored. `created`: when it was taken; `replaced`: whether a collection was there."""

    documents: int
    chunks: int
    created: float
    replaced: bool
    seconds: float


def take_snapshot(collection: Collection, to: Path) -> SnapshotReport:
    """Copy a collection as of one moment into the new directory `to`. Reads and writes go on meanwhile.

    Raises:
        TransferError: there is something at `to`, or it lies inside the collection, or a snapshot is being taken there.
        StorageFull, CollectionUnavailable: it cannot be written; nothing is left of it.
        CollectionDamaged: the record cannot be read.
    """
    started = time.monotonic()
    to = Path(to)
    if to.resolve().is_relative_to(collection.path.resolve()):
        raise TransferError(f"{to} lies inside the collection's own directory: choose a place outside")
    if os.path.lexists(to):
        raise TransferError(f"{to} is there already: choose another name, or remove it first")
    partial = to.with_name(f".{to.name}.part")
    with accessible(to):
        partial.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = _place_lock(partial)
    try:
        with accessible(to):
            for leftover in partial.iterdir():  # of one that was killed
                if leftover.name != LOCK:
                    leftover.unlink()
            contents = _write_snapshot(collection, partial)
            (partial / LOCK).unlink()
            sync_directory(partial)
            # Renaming onto an empty directory that came meanwhile is allowed, onto a full one an error.
            partial.rename(to)
            sync_directory(to.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        lock.release()
    size = sum(file["bytes"] for file in contents["files"].values()) + (to / CONTENTS).stat().st_size
    return SnapshotReport(contents["documents"], contents["chunks"], size, time.monotonic() - started)


def check_snapshot(snapshot: Path) -> dict[str, Any]:
    """What `snapshot.json` says, after every file was held against it.

    Raises:
        TransferError: it is no snapshot, or a file is missing, cut off or changed.
        CollectionMismatch: a newer release took it.
    """
    snapshot = Path(snapshot)
    try:
        contents = json.loads((snapshot / CONTENTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TransferError(f"{snapshot} is not a snapshot: it has no {CONTENTS}") from None
    except OSError as error:
        raise refusal(snapshot, error) from error
    except ValueError as error:
        raise TransferError(
            f"{snapshot / CONTENTS} is damaged ({error}): use another snapshot. Nothing was changed"
        ) from error
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise TransferError(f"{snapshot} is not a snapshot: its {CONTENTS} has no format {FORMAT!r}")
    if contents.get("version") != VERSION:
        raise CollectionMismatch(
            f"{snapshot} has version {contents.get('version')!r}, this release restores version {VERSION}: use the "
            "release that took it, or a newer one. Nothing was changed"
        )
    files = contents.get("files")
    if not isinstance(files, dict) or not {DATABASE, MANIFEST} <= files.keys():
        raise TransferError(f"{snapshot / CONTENTS} is damaged: it does not list the files. Nothing was changed")
    for name in (DATABASE, MANIFEST):
        try:
            found = _measure(snapshot / name)
        except OSError as error:
            raise TransferError(
                f"{snapshot / name} cannot be read ({error.strerror}): use another snapshot. Nothing was changed"
            ) from error
        if found != files[name]:
            raise TransferError(
                f"{snapshot / name} is damaged: it has {found['bytes']} bytes and SHA-256 {found['sha256'][:12]}…, not "
                f"those of {CONTENTS}: copy it again, or use another snapshot. Nothing was changed"
            )
    return contents


def restore_snapshot(
    snapshot: Path, path: Path, *, replace: bool = False, endpoints: Container[str] | None = None
) -> RestoreReport:
    """Make a collection at `path` out of a snapshot, named after its directory. No embedder is needed.

    The new collection is laid out beside and opened there first; only then does it take its place, in one step that a
    crash cannot leave half done. With `replace` the old one is kept until the new one has been opened in its place. An
    index beside the old one (`next/`, `previous/`) stays, and is brought up to date when it is switched to.

    Args:
        endpoints: embedders of the kind `openai:MODEL@URL` that a snapshot may name, for questions and the key of
            embeddings are sent to whatever its manifest says; None: any, for a snapshot of one's own.

    Raises:
        TransferError, CollectionMismatch: as for `check_snapshot`; nothing was changed.
        EmbedderError: the snapshot's embedder is an endpoint that is not among `endpoints`; nothing was changed.
        CollectionExists: there is a collection, or something else, and `replace` was not asked for.
        CollectionLocked: somebody has the collection open.
        StorageFull, CollectionUnavailable, CollectionDamaged: it cannot be laid out; what was there still is.
    """
    started = time.monotonic()
    snapshot, path = Path(snapshot), Path(path)
    contents = check_snapshot(snapshot)
    embedder = read_manifest(snapshot).embedder.spec
    if endpoints is not None and embedder.startswith("openai:") and embedder not in endpoints:
        raise EmbedderError(
            f"the snapshot's embedder is {embedder}: every question, and the key of embeddings, would be sent there. "
            "If that is right, name it (`--embedder`, or the setting `embedder`); nothing was changed"
        )
    created_path = not path.exists()
    with accessible(path):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = DirectoryLock(path)
    try:
        with accessible(path):
            finish_exchange(path)
            there = is_collection(path)
            _check_place(path, there=there, replacing=replace)
            for name in (RESTORED, REPLACED):
                discard(path, name)
            try:
                _stage(snapshot, path / RESTORED, path.name)
                _try_out(path / RESTORED, contents)
            except BaseException:
                with suppress(OSError, CorpusError):
                    discard(path, RESTORED)
                raise
            exchange(path, incoming=RESTORED, outgoing=REPLACED)
            try:
                _look_in(path, contents)
            except BaseException:
                if there:
                    exchange(path, incoming=REPLACED, outgoing=RESTORED)
                    discard(path, RESTORED)
                raise
            discard(path, REPLACED)
    except BaseException:
        if created_path:
            with suppress(OSError):
                (path / LOCK).unlink(missing_ok=True)
                path.rmdir()  # succeeds only if nothing is in it
        raise
    finally:
        lock.release()
    return RestoreReport(
        contents["documents"], contents["chunks"], contents["created"], there, time.monotonic() - started
    )


def _place_lock(partial: Path) -> DirectoryLock:
    try:
        return DirectoryLock(partial)
    except CorpusError as error:
        raise TransferError(f"a snapshot is being written to {partial} already: wait for that ({error})") from error


def _write_snapshot(collection: Collection, partial: Path) -> dict[str, Any]:
    collection.record.copy_to(partial / DATABASE)
    documents, chunks = _detach(partial / DATABASE)
    _sync(partial / DATABASE)
    manifest = collection.manifest
    manifest.write(partial)
    contents = {
        "format": FORMAT,
        "version": VERSION,
        "created": time.time(),
        "name": manifest.name,
        "documents": documents,
        "chunks": chunks,
        "embedder": asdict(manifest.embedder),
        "chunker": manifest.chunker,
        "files": {name: _measure(partial / name) for name in (DATABASE, MANIFEST)},
    }
    replace_file(partial / CONTENTS, json.dumps(contents, ensure_ascii=False, indent=2) + "\n")
    return contents


def _detach(database: Path) -> tuple[int, int]:
    """Take out of a copied record what only held for the original's indexes; returns its documents and chunks."""
    with closing(Store(database)) as store, store.write() as connection:
        for table in ("derived", "tombstones"):
            connection.execute(f"DELETE FROM {table}")
        connection.executemany("DELETE FROM meta WHERE name = ?", [(name,) for name in _OWN])
        # So that Chroma is built in the background while exact search serves, not by the first query.
        save_progress(connection, "dense", Progress(0, 0, "the collection was restored from a snapshot"))
        return document_count(connection), chunk_count(connection)


def _stage(snapshot: Path, place: Path, name: str) -> None:
    place.mkdir()
    shutil.copyfile(snapshot / DATABASE, place / DATABASE)
    # A copy is in rollback mode; the record works with a write-ahead log, and the mode is part of the file.
    with closing(sqlite3.connect(place / DATABASE)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    renamed = dataclasses.replace(read_manifest(snapshot), name=name)
    with closing(Store(place / DATABASE)) as store, store.write() as connection:
        put_meta(connection, RECORDED_MANIFEST, renamed.to_json())
        connection.execute("DELETE FROM meta WHERE name = ?", (RECORDED_EMBEDDER,))
    _sync(place / DATABASE)
    renamed.write(place)


def _try_out(place: Path, contents: Mapping[str, Any]) -> None:
    """Open the collection, which lays out its BM25 index, and count."""
    manifest = read_manifest(place)
    with Collection.open(place, embedder=LazyEmbedder(manifest.embedder)):
        pass
    _look_in(place, contents)


def _look_in(path: Path, contents: Mapping[str, Any]) -> None:
    """Open the record and count."""
    _, store = open_record(path)
    with closing(store), store.read() as connection:
        found = document_count(connection), chunk_count(connection)
    if found != (contents["documents"], contents["chunks"]):
        raise TransferError(
            f"the restored collection has {found[0]} documents and {found[1]} chunks, not the {contents['documents']} "
            f"and {contents['chunks']} of the snapshot: use another snapshot"
        )


def _check_place(path: Path, *, there: bool, replacing: bool) -> None:
    if there and not replacing:
        raise CollectionExists(
            f"there is already a collection at {path}: restore under another name, or replace it (`--replace`)"
        )
    foreign = [] if there else [p.name for p in path.iterdir() if p.name not in (LOCK, RESTORED, REPLACED)]
    if foreign:
        raise CollectionExists(f"{path} is not empty ({foreign[0]} …): choose a new name")


def _measure(file: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
