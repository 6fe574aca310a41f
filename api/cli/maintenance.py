"""`verify`, `rebuild` and `compact`: is a collection sound, make it so, and make it forget."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from thresher.api.cli.common import CollectionOption, JsonOption, NameArgument, absolute_spec, opener, settings
from thresher.api.cli.console import ExitCode, clean, emit, out, plural


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(verify)
    app.command()(rebuild)
    app.command()(compact)


def verify(
    ctx: typer.Context, name: NameArgument = None, collection: CollectionOption = None, json: JsonOption = False
) -> None:
    """Check a collection for damage.

    Its record and its indexes are held against each other. Exit status: 1 if something is wrong.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.operations.care import VERIFY, VerifyRequest

    chosen = settings(ctx, collection=collection or name)
    report = perform(VERIFY, VerifyRequest(), chosen.collection, opener=opener(chosen))
    if json:
        emit(report)
    else:
        problems = report["problems"]
        for problem in problems:
            out().print(f"problem: {clean(problem)}")
        sizes = f"{plural(report['documents'], 'document')}, {plural(report['chunks'], 'chunk')}"
        advice = f"{plural(len(problems), 'problem')}; `thresher rebuild {chosen.collection}` makes the indexes anew"
        out().print(f"{chosen.collection}: {sizes}: {'no problems' if report['ok'] else advice}")
    if not report["ok"]:
        raise typer.Exit(ExitCode.ERROR)


def rebuild(
    ctx: typer.Context,
    name: NameArgument = None,
    collection: CollectionOption = None,
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", metavar="SPEC", help="Change the embedder; the same as reindex --embedder."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a collection's indexes anew from its record."""
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.operations.care import REBUILD, RebuildRequest

    chosen = settings(ctx, collection=collection or name)
    with progress_bar() as bar:
        request = RebuildRequest(embedder=None if embedder is None else absolute_spec(embedder))
        report = perform(REBUILD, request, chosen.collection, opener=opener(chosen), on_event=bar.on_event)
    _show(report, "indexed anew", as_json=json)


def compact(
    ctx: typer.Context,
    name: NameArgument = None,
    collection: CollectionOption = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Have the collection to itself meanwhile, so that it must work.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Rewrite a collection's files without what was deleted.

    Deleted text stays in database files until then; afterwards no byte of it is left in any file of the collection.
    A search that a server runs meanwhile can keep some: then this fails and says so. With --erase searches wait.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.operations.care import COMPACT, CompactRequest

    chosen = settings(ctx, collection=collection or name)
    report = perform(COMPACT, CompactRequest(erase=erase), chosen.collection, opener=opener(chosen))
    _show(report, "rewritten", as_json=json)


def _show(report: dict[str, Any], done: str, *, as_json: bool) -> None:
    if as_json:
        emit(report)
        return
    embedded = f", {report['embedded']:,} embedded" if report["embedded"] else ""
    chunks = plural(report["chunks"], "chunk")
    out().print(f"{report['collection']}: {chunks} {done}{embedded} in {report['seconds']:.1f} s")
