"""Whether a collection is sound, making it so, and making it forget: `verify`, `rebuild`, `compact`."""

from __future__ import annotations

from dataclasses import asdict

from thresher.api.opening import require_collection
from thresher.api.operations.base import Document, Operation, Reporter, Request, Target
from thresher.corpus.info import RebuildReport

_REPAIR_S = 20.0
"""How long `verify` waits for what is being built in the background."""


class VerifyRequest(Request):
    """Takes no arguments."""


class RebuildRequest(Request):
    """Make the indexes anew. `embedder`: embed the stored text again, with this one."""

    embedder: str | None = None


class CompactRequest(Request):
    """Rewrite every file without what was deleted. `erase`: once nobody else uses the collection."""

    erase: bool = False


def _verify(target: Target, request: VerifyRequest, reporter: Reporter) -> Document:
    with target.open() as opened:
        # What is being built anew, as after a restore, is nothing that a person should be told to mend.
        opened.wait_for_repair(_REPAIR_S)
        report = opened.verify()
    return {"object": "verification", "collection": target.name, "ok": report.ok, **asdict(report)}


def _rebuild(target: Target, request: RebuildRequest, reporter: Reporter) -> Document:
    if request.embedder is None:
        with target.open() as opened:
            return _rebuilt("rebuild", target, opened.rebuild())
    from thresher.api.operations.reindexing import ReindexRequest, reindexed

    require_collection(target.name)
    made = reindexed(target, ReindexRequest(embedder=request.embedder), reporter)
    report = RebuildReport(chunks=made["chunks"], seconds=made["seconds"], embedded=made["embedded"])
    return _rebuilt("rebuild", target, report)


def _compact(target: Target, request: CompactRequest, reporter: Reporter) -> Document:
    # A search that is under way keeps old pages in the write-ahead log; alone, there is none.
    with target.alone() if request.erase else target.open() as opened:
        return _rebuilt("compaction", target, opened.compact())


def _rebuilt(kind: str, target: Target, report: RebuildReport) -> Document:
    return {"object": kind, "collection": target.name, **asdict(report)}


VERIFY = Operation("verify", VerifyRequest, _verify)
REBUILD = Operation("rebuild", RebuildRequest, _rebuild, single=True)
COMPACT = Operation("compact", CompactRequest, _compact, single=True)
