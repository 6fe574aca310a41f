"""`verify` and `rebuild`: is a collection sound, and make it so."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from thresher.api.cli.common import CollectionOption, JsonOption, open_collection, settings
from thresher.api.cli.console import ExitCode, clean, emit, out, plural

NameArgument = Annotated[str | None, typer.Argument(metavar="[COLLECTION]", help="The same as -c.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(verify)
    app.command()(rebuild)


def verify(
    ctx: typer.Context, name: NameArgument = None, collection: CollectionOption = None, json: JsonOption = False
) -> None:
    """Check the record of a collection and its indexes against each other."""
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
