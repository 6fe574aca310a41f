"""A collection as files, and back: `export`, `import`, `snapshot`, `restore`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from thresher.api.operations.base import Document, Operation, Reporter, Request, Target, Text
from thresher.api.operations.content import WriteRequest
from thresher.corpus.lifecycle.transfer import export_collection, import_collection


class ExportRequest(Request):
    """Write the collection to `file`; with `vectors`, an import with the same embedder computes nothing."""

    file: Text
    vectors: bool = False
    overwrite: bool = False


class ImportRequest(WriteRequest):
    """Put every document of an exported file into the collection."""

    file: Text


class SnapshotRequest(Request):
    """Copy the collection, as it is at one moment, into the folder `to`."""

    to: Text


class RestoreRequest(Request):
    """Make the collection what a snapshot was.

    `replace`: even if there is one of that name; `endpoints`: embedders over HTTP that the snapshot may name.
    """

    snapshot: Text
    replace: bool = False
    endpoints: tuple[Text, ...] = ()


def _export(target: Target, request: ExportRequest, reporter: Reporter) -> Document:
    with target.open() as opened:
        report = export_collection(opened, Path(request.file), vectors=request.vectors, overwrite=request.overwrite)
    return {"object": "export", "collection": target.name, "file": request.file, **asdict(report)}


def _import(target: Target, request: ImportRequest, reporter: Reporter) -> Document:
    with target.open_or_create(request.making()) as opened:
        report = import_collection(opened, Path(request.file), on_progress=reporter.on_documents)
    return {"object": "import", "collection": target.name, "file": request.file, **asdict(report)}


def _snapshot(target: Target, request: SnapshotRequest, reporter: Reporter) -> Document:
    from thresher.corpus.lifecycle.snapshots import take_snapshot

    with target.open() as opened:
        report = take_snapshot(opened, Path(request.to))
    return {"object": "snapshot", "collection": target.name, "to": request.to, **asdict(report)}


def _restore(target: Target, request: RestoreRequest, reporter: Reporter) -> Document:
    from thresher.corpus.lifecycle.snapshots import restore_snapshot

    with target.closed() as path:
        report = restore_snapshot(Path(request.snapshot), path, replace=request.replace, endpoints=request.endpoints)
    return {"object": "restore", "collection": target.name, "snapshot": request.snapshot, **asdict(report)}


EXPORT = Operation("export", ExportRequest, _export)
IMPORT = Operation("import", ImportRequest, _import, single=True)
SNAPSHOT = Operation("snapshot", SnapshotRequest, _snapshot)
RESTORE = Operation("restore", RestoreRequest, _restore, single=True)
