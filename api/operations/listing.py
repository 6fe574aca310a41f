"""What a collection holds and how it is: `documents`, `summary`, `status`."""

from __future__ import annotations

from dataclasses import asdict

from thresher.api.operations.base import Document, Operation, Reporter, Request, Target

PROBLEMS = frozenset({"failed", "no_text", "skipped"})
"""Statuses of sources that are worth a look."""


class ListingRequest(Request):
    """Takes no arguments."""


def _documents(target: Target, request: ListingRequest, reporter: Reporter) -> Document:
    with target.open() as opened:
        documents = [asdict(document) for document in opened.documents()]
        sources = [asdict(source) for source in opened.sources()]
    return {"object": "collection", "name": target.name, "sources": sources, "documents": documents}


def _summary(target: Target, request: ListingRequest, reporter: Reporter) -> Document:
    with target.open() as opened:
        stats = opened.stats()
    return {
        "name": target.name,
        "documents": stats.documents,
        "chunks": stats.chunks,
        "embedder": stats.embedder.spec,
        "bytes_on_disk": stats.bytes_on_disk,
        "state": "; ".join(stats.faults) or "ready",
    }


def _status(target: Target, request: ListingRequest, reporter: Reporter) -> Document:
    with target.open() as opened:
        stats = asdict(opened.stats())
        problems = [asdict(source) for source in opened.sources() if source.status in PROBLEMS]
    return {"object": "collection", "name": target.name, **stats, "problems": problems}


DOCUMENTS = Operation("documents", ListingRequest, _documents)
SUMMARY = Operation("summary", ListingRequest, _summary)
STATUS = Operation("status", ListingRequest, _status)
