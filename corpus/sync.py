"""Mirrors a folder: what is new or changed is read, what is gone from the folder is removed from the collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.ingest import Ingestion, IngestReport, OnProgress
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.loaders.base import normalise
from thresher.corpus.walk import LARGEST_FILE, Found, RootError, Unreadable, resolve_root


def sync(
    collection: Collection,
    root: Path,
    *,
    allow_empty: bool = False,
    on_progress: OnProgress | None = None,
    largest_file: int = LARGEST_FILE,
    parser: ParserProcess | None = None,
) -> IngestReport:
    """Make what the collection holds of `root` equal to `root`. Other sources are left alone.

    Every source whose file would lie under `root` counts, whatever root it was ingested by. Nothing below a folder that
    cannot be listed is removed.

    Args:
        allow_empty: accept a folder without any file as "everything was deleted". Without it that is an error, because
            it is also what an unmounted disk looks like.

    Raises:
        RootError: the folder does not exist, cannot be read, or is empty while the collection holds files of it.
        EmbedderError: the embedder is down; what was written stays, and nothing was removed.
    """
    resolved = resolve_root(root)
    run = Ingestion(collection, [resolved], on_progress=on_progress, largest_file=largest_file, parser=parser)
    present = {entry.path for entry, _ in run.entries if isinstance(entry, Found)}
    unknown = [entry.path for entry, _ in run.entries if isinstance(entry, Unreadable)]
    names = {normalise(entry.name) for entry, _ in run.entries if isinstance(entry, Found)}
    below = {
        place: source
        for place, source in run.identities.known().items()
        if place.is_relative_to(resolved) or source.root == str(resolved)
    }
    if below and not present and not unknown and not allow_empty:
        raise RootError(
            f"{root} holds no file, but the collection holds {len(below)} from it. If a disk is not mounted, mount it; "
            "if they were deleted on purpose, run it again with `--allow-empty`"
        )
    report = run.execute()
    gone = [
        source.id
        for place, source in below.items()
        if place not in present
        and not any(place.is_relative_to(folder) for folder in unknown)
        and source.id not in names
    ]
    if not gone:
        return report
    return replace(report, removed=report.removed + collection.remove_sources(gone))
