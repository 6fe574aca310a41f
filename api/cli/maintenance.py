"""`verify`, `rebuild` and `compact`: is a collection sound, make it so, and make it forget."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import CollectionOption, JsonOption, open_collection, require_collection, settings
from thresher.api.cli.console import ExitCode, clean, emit, out, plural

if TYPE_CHECKING:
    from thresher.corpus.info import RebuildReport

NameArgument = Annotated[str | None, typer.Argument(metavar="[COLLECTION]", help="The same as -c.", show_default=False)]


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
    chosen = settings(ctx, collection=collection or name).collection
    with open_collection(chosen) as opened:
        report = opened.verify()
    if json:
        emit({"object": "verification", "collection": chosen, "ok": report.ok, **asdict(report)})
    else:
        for problem in report.problems:
            out().print(f"problem: {clean(problem)}")
        sizes = f"{plural(report.documents, 'document')}, {plural(report.chunks, 'chunk')}"
        advice = f"{plural(len(report.problems), 'problem')}; `thresher rebuild {chosen}` makes the indexes anew"
        out().print(f"{chosen}: {sizes}: {'no problems' if report.ok else advice}")
    if not report.ok:
        raise typer.Exit(ExitCode.ERROR)


def rebuild(
    ctx: typer.Context,
    name: NameArgument = None,
    collection: CollectionOption = None,
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", metavar="SPEC", help="Embed the stored text again, with this embedder."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a collection's indexes anew from its record.

    With --embedder the collection changes its embedder. Its files are not needed; an interrupted run goes on.
    """
    chosen = settings(ctx, collection=collection or name).collection
    if embedder is None:
        with open_collection(chosen) as opened:
            report = opened.rebuild()
    else:
        report = _reembed(chosen, embedder)
    _show(report, "rebuild", chosen, "indexed anew", as_json=json)


def compact(
    ctx: typer.Context, name: NameArgument = None, collection: CollectionOption = None, json: JsonOption = False
) -> None:
    """Erase what was deleted from the files.

    Deleted text stays in database files until they are rewritten; after this no byte of it is left in them.
    """
    chosen = settings(ctx, collection=collection or name).collection
    with open_collection(chosen) as opened:
        report = opened.compact()
    _show(report, "compaction", chosen, "rewritten", as_json=json)


def _reembed(name: str, spec: str) -> RebuildReport:
    from thresher.api.cli.progress import progress_bar
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.reembed import reembed

    path = require_collection(name)
    with progress_bar() as bar:
        return reembed(path, load_embedder(spec), on_progress=bar.on_chunks)


def _show(report: RebuildReport, kind: str, name: str, done: str, *, as_json: bool) -> None:
    if as_json:
        emit({"object": kind, "collection": name, **asdict(report)})
        return
    embedded = f", {report.embedded:,} embedded" if report.embedded else ""
    out().print(f"{name}: {plural(report.chunks, 'chunk')} {done}{embedded} in {report.seconds:.1f} s")
