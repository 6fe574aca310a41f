"""Another embedder or chunker for a collection, and the way back: `reindex`, `undo`, `drop_previous`, `discard`."""

from __future__ import annotations

import time
from dataclasses import asdict

from thresher.api.opening import require_collection
from thresher.api.operations.base import Document, Operation, Reporter, Request, Target
from thresher.corpus.embedders import load_embedder
from thresher.corpus.errors import CollectionMismatch, EmbedderError
from thresher.corpus.lifecycle import reindex
from thresher.corpus.manifest import read_manifest
from thresher.corpus.paths import collection_path


class ReindexRequest(Request):
    """Specs of what to change; None keeps what the collection has."""

    embedder: str | None = None
    chunker: str | None = None


class ReindexCareRequest(Request):
    """Takes no arguments."""


def _reindex(target: Target, request: ReindexRequest, reporter: Reporter) -> Document:
    require_collection(target.name)
    return {"object": "reindex", "collection": target.name, **reindexed(target, request, reporter)}


def reindexed(target: Target, request: ReindexRequest, reporter: Reporter) -> Document:
    """Build the new index beside the old one, which serves and takes writes meanwhile, and switch to it."""
    started = time.monotonic()
    embedder = None if request.embedder is None else load_embedder(request.embedder)
    arguments = (embedder, request.chunker, reporter.on_documents)
    try:
        with target.open() as collection:
            built = reindex.build_next(collection, *arguments)
    except (CollectionMismatch, EmbedderError):
        if embedder is None:
            raise
        # The old embedder may be what is missing; its text can be read without it. If it was the new one that failed,
        # this fails in the same way.
        with target.closed() as path:
            built = reindex.reindex(path, *arguments)
        switched = {"documents": built.documents, "chunks": built.chunks}
    else:
        with target.closed() as path:
            report = reindex.switch_to_next(path, embedder=embedder)
        switched = {"documents": report.documents, "chunks": report.chunks}
    manifest = read_manifest(collection_path(target.name))
    return {
        **asdict(built),
        **switched,
        "embedder": manifest.embedder.spec,
        "chunker": manifest.chunker,
        "seconds": time.monotonic() - started,
    }


def _undo(target: Target, request: ReindexCareRequest, reporter: Reporter) -> Document:
    with target.closed() as path:
        report = reindex.switch_back(path)
    return {"object": "reindex_undo", "collection": target.name, **asdict(report)}


def _drop_previous(target: Target, request: ReindexCareRequest, reporter: Reporter) -> Document:
    with target.closed() as path:
        return {"object": "reindex_drop", "collection": target.name, "dropped": reindex.drop_previous(path)}


def _discard(target: Target, request: ReindexCareRequest, reporter: Reporter) -> Document:
    with target.closed() as path:
        return {"object": "reindex_discard", "collection": target.name, "discarded": reindex.discard_next(path)}


REINDEX = Operation("reindex", ReindexRequest, _reindex, single=True)
UNDO = Operation("undo", ReindexCareRequest, _undo, single=True)
DROP_PREVIOUS = Operation("drop_previous", ReindexCareRequest, _drop_previous, single=True)
DISCARD = Operation("discard", ReindexCareRequest, _discard, single=True)
