"""`ingest`, `sync`, `rm`, `ls`, `status`: what is in a collection."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import CollectionOption, JsonOption, open_collection, open_or_create, settings
from thresher.api.cli.console import ExitCode, clean, emit, err, human_bytes, out, plural, table

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.corpus.ingest import IngestReport

EmbedderOption = Annotated[
    str | None,
    typer.Option("--embedder", metavar="SPEC", help="minilm, wordllama, st:NAME_OR_PATH or openai:MODEL@BASE_URL."),
]
SHOWN_PROBLEMS = 20


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
    """Read files and folders into a collection. What has not changed is left alone."""
    from thresher.api.cli.progress import ingest_progress
    from thresher.corpus.ingest import ingest as run

    chosen = settings(ctx, collection=collection, embedder=embedder)
    _require_paths(paths)
    with open_or_create(chosen.collection, embedder, chosen.embedder) as opened, ingest_progress() as on_progress:
        report = run(opened, paths, on_progress=on_progress)
    _report(report, chosen.collection, as_json=json)


def sync(
    ctx: typer.Context,
    root: Annotated[Path, typer.Argument(help="Folder to mirror.")],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Make a collection mirror a folder: new and changed files are read, deleted ones removed."""
    from thresher.api.cli.progress import ingest_progress
    from thresher.corpus.sync import sync as run

    chosen = settings(ctx, collection=collection, embedder=embedder)
    with open_or_create(chosen.collection, embedder, chosen.embedder) as opened, ingest_progress() as on_progress:
        report = run(opened, root, on_progress=on_progress)
    _report(report, chosen.collection, as_json=json)


def rm(
    ctx: typer.Context,
    document_ids: Annotated[list[str], typer.Argument(metavar="DOC_ID...", help="Ids as `thresher ls -c` lists them.")],
    collection: CollectionOption = None,
    json: JsonOption = False,
) -> None:
    """Remove documents from a collection. With an id that is not there, nothing is removed."""
    from thresher.corpus.errors import DocumentNotFound

    name = settings(ctx, collection=collection).collection
    wanted = list(dict.fromkeys(document_ids))
    with open_collection(name) as opened:
        unknown = [document_id for document_id in wanted if opened.document(document_id) is None]
        if unknown:
            raise DocumentNotFound(
                f"no document {', '.join(map(repr, unknown))} in collection {name!r}, so nothing was removed; "
                f"`thresher ls -c {name}` lists the ids"
            )
        removed = opened.delete_documents(wanted)
    if json:
        emit({"object": "removal", "collection": name, "removed": removed, "document_ids": wanted})
    else:
        out().print(f"removed {plural(removed, 'document')} from {name}")


def ls(ctx: typer.Context, collection: CollectionOption = None, json: JsonOption = False) -> None:
    """List the collections, or with -c the sources and documents of one."""
    if collection is not None:
        name = settings(ctx, collection=collection).collection
        with open_collection(name) as opened:
            _list_documents(opened, name, as_json=json)
        return
    from thresher.corpus.paths import home, list_collections

    rows = [_summary(name) for name in list_collections()]
    if json:
        emit({"object": "list", "data": rows})
        return
    if not rows:
        out().print(f"no collections in {home()}; `thresher ingest PATH` makes one")
        return
    listing = table("collection", "documents", "chunks", "embedder", "size", "state", right=("documents", "chunks", "size"))
    for row in rows:
        counts = [f"{row[key]:,}" if key in row else "" for key in ("documents", "chunks")]
        size = human_bytes(row["bytes_on_disk"]) if "bytes_on_disk" in row else ""
        listing.add_row(row["name"], *counts, row.get("embedder", ""), size, row["state"])
    out().print(listing)


def status(ctx: typer.Context, collection: CollectionOption = None, json: JsonOption = False) -> None:
    """Show the state of a collection and of its indexes."""
    name = settings(ctx, collection=collection).collection
    with open_collection(name) as opened:
        stats = asdict(opened.stats())
        problems = [asdict(source) for source in opened.sources() if source.status in ("failed", "no_text", "skipped")]
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


def _summary(name: str) -> dict[str, Any]:
    """One collection as a row; one that cannot be opened says why instead of hiding."""
    from thresher.corpus.errors import CollectionLocked, CorpusError

    try:
        with open_collection(name) as opened:
            stats = opened.stats()
    except CollectionLocked as error:
        return {"name": name, "state": f"in use by process {error.pid}" if error.pid else "in use"}
    except CorpusError as error:
        return {"name": name, "state": f"{error.code}: {error}"}
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
    document = {"object": "ingestion", "collection": name, **asdict(report)}
    results = document["sources"]
    counts: dict[str, int] = {}
    for result in results:
        counts[str(result["status"])] = counts.get(str(result["status"]), 0) + 1
    failed = counts.get("failed", 0)
    if as_json:
        emit({**document, "counts": counts})
    else:
        _print_problems([result for result in results if result["status"] in ("failed", "no_text", "skipped")])
        parts = [f"{counts[state]:,} {state}" for state in ("indexed", "unchanged", "no_text", "skipped", "failed") if state in counts]
        if report.removed:
            parts.append(f"removed {report.removed:,}")
        work = f"{report.embedded:,} embedded, {report.reused:,} reused, {report.seconds:.1f} s"
        out().print(f"{name}: {', '.join(parts) or 'nothing to do'} ({work})")
    if failed:
        raise typer.Exit(ExitCode.ERROR if failed == len(results) else ExitCode.PARTIAL)


def _print_problems(results: list[dict[str, Any]]) -> None:
    console = err()
    for result in results[:SHOWN_PROBLEMS]:
        console.print(f"{result['status']}: {clean(result['id'])}: {clean(result['reason'] or 'no reason given')}")
    if len(results) > SHOWN_PROBLEMS:
        console.print(f"… and {len(results) - SHOWN_PROBLEMS:,} more; `thresher status` or --json lists them all")
