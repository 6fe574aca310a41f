"""`ingest`, `sync`, `rm`, `ls`, `status`: what is in a collection."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import (
    CollectionOption,
    EmbedderOption,
    JsonOption,
    open_collection,
    open_or_create,
    settings,
)
from thresher.api.cli.console import ExitCode, clean, emit, err, human_bytes, out, plural, table

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.corpus.ingest import IngestReport

SHOWN_PROBLEMS = 20
SHOWN_NAMES = 3
_PROBLEMS = frozenset({"failed", "no_text", "skipped"})


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    for command in (ingest, sync, rm, ls, status):
        app.command()(command)


def ingest(
    ctx: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATHS...", help="Files and folders.")],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Read files and folders into a collection.

    What has not changed since the last time is left alone. Exit status: 3 if some files failed.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.corpus.ingest import ingest as run

    chosen = settings(ctx, collection=collection, embedder=embedder)
    _require_paths(paths)
    with open_or_create(chosen.collection, embedder, chosen.embedder) as opened, progress_bar() as bar:
        report = run(opened, paths, on_progress=bar.on_ingest)
    _report(report, chosen.collection, as_json=json)


def sync(
    ctx: typer.Context,
    root: Annotated[Path, typer.Argument(help="Folder to mirror.")],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Take an empty folder to mean that everything was deleted.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make a collection mirror a folder.

    New and changed files are read, documents of deleted files removed. Exit status: 3 if some files failed.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.corpus.sync import sync as run

    chosen = settings(ctx, collection=collection, embedder=embedder)
    _require_paths([root])
    with open_or_create(chosen.collection, embedder, chosen.embedder) as opened, progress_bar() as bar:
        report = run(opened, root, allow_empty=allow_empty, on_progress=bar.on_ingest)
    _report(report, chosen.collection, as_json=json)


def rm(
    ctx: typer.Context,
    document_ids: Annotated[list[str], typer.Argument(metavar="DOC_ID...", help="Ids as `thresher ls -c` lists them.")],
    collection: CollectionOption = None,
    json: JsonOption = False,
) -> None:
    """Remove documents from a collection.

    If one of the ids is not there, nothing is removed. The next `ingest` or `sync` of a removed file brings it back; a
    record of a JSONL file comes back when the file changes.
    """
    from thresher.corpus.errors import DocumentNotFound

    name = settings(ctx, collection=collection).collection
    wanted = list(dict.fromkeys(document_ids))
    with open_collection(name) as opened:
        documents = {document_id: opened.document(document_id) for document_id in wanted}
        unknown = [document_id for document_id, document in documents.items() if document is None]
        if unknown:
            raise DocumentNotFound(
                f"no document {', '.join(map(repr, unknown))} in collection {name!r}, so nothing was removed; "
                f"`thresher ls -c {name}` lists the ids"
            )
        removed = opened.delete_documents(wanted)
        # A source that is left empty goes too: were it kept, the next ingestion would call its file unchanged.
        origins = {document.source_id for document in documents.values() if document is not None}
        emptied = [source_id for source_id in origins if next(opened.documents(source_id=source_id), None) is None]
        opened.remove_sources(emptied)
    if json:
        emit({"object": "removal", "collection": name, "removed": removed, "document_ids": wanted})
    else:
        out().print(f"removed {plural(removed, 'document')} from {name}")


def ls(ctx: typer.Context, collection: CollectionOption = None, json: JsonOption = False) -> None:
    """List collections, or with -c what one holds."""
    name = settings(ctx, collection=collection).collection
    if collection is not None:
        with open_collection(name) as opened:
            _list_documents(opened, name, as_json=json)
        return
    from thresher.corpus.paths import home, list_collections

    rows = [summary(name) for name in list_collections()]
    if json:
        emit({"object": "list", "data": rows})
        return
    if not rows:
        out().print(f"no collections in {home()}; `thresher ingest PATH` makes one")
        return
    numbers = ("documents", "chunks", "size")
    listing = table("collection", *numbers, "embedder", "state", right=numbers)
    for row in rows:
        counts = [f"{row[key]:,}" if key in row else "" for key in ("documents", "chunks")]
        size = human_bytes(row["bytes_on_disk"]) if "bytes_on_disk" in row else ""
        listing.add_row(row["name"], *counts, size, row.get("embedder", ""), clean(row["state"]))
    out().print(listing)


def status(ctx: typer.Context, collection: CollectionOption = None, json: JsonOption = False) -> None:
    """Show the state of a collection and of its indexes."""
    name = settings(ctx, collection=collection).collection
    with open_collection(name) as opened:
        stats = asdict(opened.stats())
        problems = [asdict(source) for source in opened.sources() if source.status in _PROBLEMS]
    if json:
        emit({"object": "collection", "name": name, **stats, "problems": problems})
        return
    listing = table("", "")
    listing.show_header = False
    listing.add_row("collection", name)
    listing.add_row("documents", f"{stats['documents']:,}")
    listing.add_row("chunks", f"{stats['chunks']:,}")
    listing.add_row("sources", ", ".join(f"{count:,} {state}" for state, count in stats["sources"].items()) or "none")
    embedder = stats["embedder"]
    listing.add_row("embedder", f"{embedder['spec']} ({embedder['dimension']} dimensions, {embedder['revision']})")
    listing.add_row("dense search", f"{stats['dense']}: {stats['dense_reason']}")
    listing.add_row("operations", f"{stats['last_seq']:,}, {stats['pending']:,} not yet in every index")
    listing.add_row("size", human_bytes(stats["bytes_on_disk"]))
    for fault in stats["faults"]:
        listing.add_row("fault", clean(fault))
    out().print(listing)
    _print_problems(problems)


def _require_paths(paths: list[Path]) -> None:
    from thresher.api.errors import UsageError

    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"no such file or folder: {', '.join(missing)}")


def summary(name: str) -> dict[str, Any]:
    """One collection as a row; one that cannot be opened says why instead of hiding."""
    from thresher.api.errors import explain
    from thresher.corpus.errors import CollectionLocked

    try:
        with open_collection(name) as opened:
            stats = opened.stats()
    except CollectionLocked as error:
        return {"name": name, "locked": True, "state": f"in use by process {error.pid}" if error.pid else "in use"}
    except Exception as error:  # whatever is wrong with one must not hide the others
        problem = explain(error)
        code, message = (problem.code, problem.message) if problem else (type(error).__name__, str(error))
        return {"name": name, "state": f"{code}: {message}"}
    return {
        "name": name,
        "documents": stats.documents,
        "chunks": stats.chunks,
        "embedder": stats.embedder.spec,
        "bytes_on_disk": stats.bytes_on_disk,
        "state": "; ".join(stats.faults) or "ready",
    }


def _list_documents(opened: Collection, name: str, *, as_json: bool) -> None:
    documents = [asdict(document) for document in opened.documents()]
    sources = [asdict(source) for source in opened.sources()]
    if as_json:
        emit({"object": "collection", "name": name, "sources": sources, "documents": documents})
        return
    listing = table("source", "status", "documents", "chunks", "reason", right=("documents", "chunks"))
    for source in sources:
        row = (source["status"], f"{source['documents']:,}", f"{source['chunks']:,}", clean(source["reason"] or ""))
        listing.add_row(clean(source["id"]), *row)
    if sources:
        out().print(listing)
    listing = table("document", "title", "chunks", right=("chunks",))
    for document in documents:
        listing.add_row(clean(document["id"]), clean(document["title"]), f"{document['chunks']:,}")
    out().print(listing)
    out().print(f"{plural(len(sources), 'source')}, {plural(len(documents), 'document')}")


def _report(report: IngestReport, name: str, *, as_json: bool) -> None:
    """Print what an ingestion did and end with the exit code that says so."""
    results = [asdict(result) for result in report.sources]
    counts = {str(state): count for state, count in report.counts.items() if count}
    failed = counts.get("failed", 0)
    if as_json:
        emit({"object": "ingestion", "collection": name, **asdict(report), "counts": counts})
    else:
        _print_problems([result for result in results if result["status"] in _PROBLEMS])
        parts = [f"{count:,} {state}" for state, count in counts.items()]
        if report.removed:
            parts.append(f"{report.removed:,} removed")
        work = f"{report.embedded:,} embedded, {report.reused:,} reused, {report.seconds:.1f} s"
        out().print(f"{name}: {', '.join(parts) or 'nothing to do'} ({work})")
    if failed:
        raise typer.Exit(ExitCode.ERROR if failed == len(results) else ExitCode.PARTIAL)


def _print_problems(results: list[dict[str, Any]]) -> None:
    """A line for each reason, with the files it holds for."""
    console = err()
    groups: dict[tuple[str, str], list[str]] = {}
    for result in results:
        groups.setdefault((str(result["status"]), result["reason"] or "no reason given"), []).append(result["id"])
    for (state, reason), names in list(groups.items())[:SHOWN_PROBLEMS]:
        shown = ", ".join(names[:SHOWN_NAMES])
        more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
        console.print(clean(f"{state}: {shown}{more}: {reason}"))
    if len(groups) > SHOWN_PROBLEMS:
        console.print(f"… and {len(groups) - SHOWN_PROBLEMS:,} more reasons; --json lists every file")
