"""Mirrors an origin: what is new or changed is read, what is gone from there is removed from the collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Source, Status
from thresher.corpus.ingestion.identity import Entry, Place, place_of
from thresher.corpus.ingestion.ingest import Ingestion
from thresher.corpus.ingestion.locks import writer_locks
from thresher.corpus.ingestion.origins import Origin, is_present, parse_origin, remember_origins
from thresher.corpus.ingestion.report import IngestReport, OnProgress, SourceResult
from thresher.corpus.ingestion.walk import LARGEST_FILE, Found, RootError, Unreadable
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.loaders.base import normalise

REMOVED = "; what was read from it was removed"


def sync(
    collection: Collection,
    origin: str | Path,
    *,
    allow_empty: bool = False,
    on_progress: OnProgress | None = None,
    largest_file: int = LARGEST_FILE,
    parser: ParserProcess | None = None,
    ray: str | None = None,
) -> IngestReport:
    """Make what the collection holds of `origin` equal to `origin`. Other sources are left alone.

    Of a folder or a pattern, every source counts whose file would lie there, whatever root it was ingested by; of a
    list of URLs, the pages that came from that list. Nothing below a folder that cannot be listed is removed, and no
    page unless the server says that it is not there (404, 410) or the list no longer names it.

    Args:
        origin: a folder, a file, a glob pattern, a URL or `urls:FILE`; see `parse_origin`.
        allow_empty: accept an origin without anything in it as "everything was deleted". Without it that is an error,
            because it is also what an unmounted disk looks like.

    Other arguments, and the error of a Ray cluster, are those of `ingest`.

    Raises:
        RootError: the origin does not exist, cannot be read, or is empty while the collection holds something of it.
        EmbedderError: the embedder is down; what was written stays, and nothing was removed.
    """
    parsed = parse_origin(origin)
    with writer_locks(collection).run:
        run = Ingestion(
            collection, [parsed], on_progress=on_progress, largest_file=largest_file, parser=parser, ray=ray
        )
        ((_, entries),) = run.found
        covered = {place: source for place, source in run.identities.known().items() if parsed.covers(place, source)}
        if covered and not entries and not allow_empty:
            raise RootError(_nothing_left(parsed, len(covered)))
        remember_origins(collection, [parsed])
        report = run.execute()
        gone = [*_absent(entries, covered), *run.gone]
        if run.gone and len(run.gone) == len(entries) and len(covered) > 1 and not allow_empty:
            raise RootError(_nothing_left(parsed, len(covered)))
        if not gone:
            return report
        removed = report.removed + collection.remove_sources(gone)
        results = tuple(_settled(result, set(run.gone)) for result in report.sources)
        return replace(report, removed=removed, sources=results)


def _absent(entries: Sequence[Entry], covered: dict[Place, Source]) -> list[str]:
    """Ids of the sources that the origin answers for and does not have any more."""
    present = {place_of(entry) for entry in entries if is_present(entry)}
    unknown = [entry.path for entry in entries if isinstance(entry, Unreadable)]
    # A name that another file took over since is no longer that source's.
    names = {normalise(entry.name) for entry in entries if isinstance(entry, Found)}
    return [
        source.id
        for place, source in covered.items()
        if place not in present
        and source.id not in names
        and not (isinstance(place, Path) and any(place.is_relative_to(folder) for folder in unknown))
    ]


def _settled(result: SourceResult, gone: set[str]) -> SourceResult:
    """A page that is gone has been mirrored: that is no failure."""
    if result.id not in gone:
        return result
    return SourceResult(result.id, Status.SKIPPED, f"{result.reason}{REMOVED}")


def _nothing_left(origin: Origin, count: int) -> str:
    return (
        f"{origin.nothing()}, but the collection holds {count} from it. Nothing was removed. If a disk is not mounted "
        "or a server is not itself, mend that; if they were deleted on purpose, run it again with `--allow-empty`"
    )
