"""`ingest`, `sync`, `rm`, `ls`, `status`: what is in a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import (
    ChunkerOption,
    CollectionOption,
    EmbedderOption,
    JsonOption,
    making,
    opener,
    settings,
)
from thresher.api.cli.console import ExitCode, clean, emit, err, human_bytes, out, plural, table
from thresher.api.cli.origins import absolute_origins

if TYPE_CHECKING:
    from thresher.api.opening import Opener

SHOWN_PROBLEMS = 20
SHOWN_NAMES = 3


OcrOption = Annotated[
    bool | None, typer.Option("--ocr/--no-ocr", help="Read pictures and scans too; needs `pip install thresher[ocr]`.")
]
RayOption = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Parse and embed on this Ray cluster; auto, local or HOST:PORT."),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    for command in (ingest, sync, rm, ls, status):
        app.command()(command)


def ingest(
    ctx: typer.Context,
    origins: Annotated[
        list[str],
        typer.Argument(metavar="ORIGINS...", help="Folders, files, 'glob/**/*.md', URLs, urls:FILE (a URL a line)."),
    ],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    chunker: ChunkerOption = None,
    ocr: OcrOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Read files, folders and pages into a collection.

    What has not changed since the last time is left alone. Exit status: 3 if some failed.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.operations.content import INGEST, IngestRequest

    chosen = settings(ctx, collection=collection, embedder=embedder, chunker=chunker, ocr=ocr)
    request = IngestRequest(
        origins=absolute_origins(origins),
        ocr=chosen.ocr,
        ray=ray,
        **making(chosen, embedder=embedder, chunker=chunker),
    )
    with progress_bar() as bar:
        report = perform(INGEST, request, chosen.collection, opener=opener(chosen), on_event=bar.on_event)
    _report(report, as_json=json)


def sync(
    ctx: typer.Context,
    origin: Annotated[str, typer.Argument(metavar="ORIGIN", help="What to mirror; as for ingest.")],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    chunker: ChunkerOption = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Take an origin without files to mean that everything was deleted.")
    ] = False,
    ocr: OcrOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Make a collection mirror a folder.

    Or a glob pattern, a page, or a list of pages. What is new or changed is read, documents of deleted files are
    removed. Exit status: 3 if some failed.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.operations.content import SYNC, SyncRequest

    chosen = settings(ctx, collection=collection, embedder=embedder, chunker=chunker, ocr=ocr)
    gone = (
        "; if it was deleted, remove its documents with `thresher rm` "
        f"(`thresher ls -c {chosen.collection}` lists them)"
    )
    [place] = absolute_origins([origin], advice=gone)
    request = SyncRequest(
        origin=place,
        allow_empty=allow_empty,
        ocr=chosen.ocr,
        ray=ray,
        **making(chosen, embedder=embedder, chunker=chunker),
    )
    with progress_bar() as bar:
        report = perform(SYNC, request, chosen.collection, opener=opener(chosen), on_event=bar.on_event)
    _report(report, as_json=json)


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
    from thresher.api.cli.perform import perform
    from thresher.api.operations.content import REMOVE, RemoveRequest

    chosen = settings(ctx, collection=collection)
    request = RemoveRequest(document_ids=document_ids)
    removal = perform(REMOVE, request, chosen.collection, opener=opener(chosen))
    if json:
        emit(removal)
    else:
        out().print(f"removed {plural(removal['removed'], 'document')} from {removal['collection']}")


def ls(ctx: typer.Context, collection: CollectionOption = None, json: JsonOption = False) -> None:
    """List collections, or with -c what one holds."""
    from thresher.api.cli.perform import perform
    from thresher.api.operations.listing import DOCUMENTS, ListingRequest
    from thresher.corpus.paths import home, list_collections

    chosen = settings(ctx, collection=collection)
    if collection is not None:
        listed = perform(DOCUMENTS, ListingRequest(), chosen.collection, opener=opener(chosen))
        if json:
            emit(listed)
        else:
            _print_documents(listed)
        return
    rows = [summary(name, opener(chosen)) for name in list_collections()]
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
    from thresher.api.cli.perform import perform
    from thresher.api.operations.listing import STATUS, ListingRequest

    chosen = settings(ctx, collection=collection)
    stats = perform(STATUS, ListingRequest(), chosen.collection, opener=opener(chosen))
    if json:
        emit(stats)
        return
    listing = table("", "")
    listing.show_header = False
    listing.add_row("collection", stats["name"])
    listing.add_row("documents", f"{stats['documents']:,}")
    listing.add_row("chunks", f"{stats['chunks']:,}")
    listing.add_row("sources", ", ".join(f"{count:,} {state}" for state, count in stats["sources"].items()) or "none")
    embedder = stats["embedder"]
    listing.add_row("embedder", f"{embedder['spec']} ({embedder['dimension']} dimensions, {embedder['revision']})")
    listing.add_row("chunker", clean(stats["chunker"]))
    for beside in ("previous", "next"):
        if stats[beside] is not None:
            listing.add_row(f"{beside} index", _beside(stats[beside]))
    listing.add_row("dense search", f"{stats['dense']}: {stats['dense_reason']}")
    listing.add_row("operations", f"{stats['last_seq']:,}, {stats['pending']:,} not yet in every index")
    listing.add_row("size", human_bytes(stats["bytes_on_disk"]))
    for fault in stats["faults"]:
        listing.add_row("fault", clean(fault))
    out().print(listing)
    _print_problems(stats["problems"])


def summary(name: str, opening: Opener) -> dict[str, Any]:
    """One collection as a row; one that cannot be opened says why instead of hiding."""
    from thresher.api.cli.perform import perform
    from thresher.api.errors import explain
    from thresher.api.operations.listing import SUMMARY, ListingRequest
    from thresher.corpus.errors import CollectionLocked

    try:
        return perform(SUMMARY, ListingRequest(), name, opener=opening)
    except CollectionLocked as error:
        return {"name": name, "locked": True, "state": f"in use by process {error.pid}" if error.pid else "in use"}
    except Exception as error:  # whatever is wrong with one must not hide the others
        problem = explain(error)
        code, message = (problem.code, problem.message) if problem else (type(error).__name__, str(error))
        return {"name": name, "state": f"{code}: {message}"}


def _beside(index: dict[str, Any]) -> str:
    """An index that is kept for `reindex --undo`, or not finished."""
    specs = ", ".join(clean(index[name]) for name in ("embedder", "chunker") if index[name]) or "cannot be read"
    return f"{specs} ({human_bytes(index['bytes_on_disk'])})"


def _print_documents(listed: dict[str, Any]) -> None:
    sources, documents = listed["sources"], listed["documents"]
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


def _report(report: dict[str, Any], *, as_json: bool) -> None:
    """Print what an ingestion did and end with the exit code that says so."""
    from thresher.api.operations.listing import PROBLEMS

    results, counts = report["sources"], report["counts"]
    failed = counts.get("failed", 0)
    if as_json:
        emit(report)
    else:
        # Then those that are indexed but not whole: what was left out of them cannot be found either.
        partial = [result for result in results if result["status"] == "indexed" and result["reason"]]
        _print_problems([result for result in results if result["status"] in PROBLEMS] + partial)
        parts = [f"{count:,} {state}" for state, count in counts.items()]
        if report["removed"]:
            parts.append(f"{report['removed']:,} removed")
        work = f"{report['embedded']:,} embedded, {report['reused']:,} reused, {report['seconds']:.1f} s"
        out().print(f"{report['collection']}: {', '.join(parts) or 'no files found'} ({work})")
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
