"""The application: global options, and the commands by group.

Only typer is imported here. What a command needs is imported when it runs, so that help stays instant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thresher.api.cli import (
    collected,
    corpus,
    demo,
    doctor,
    evaluate,
    keys,
    lifecycle,
    maintenance,
    mcp,
    runs,
    search,
    serve,
    tasks,
    trace,
    train,
    tuning,
)
from thresher.api.cli.group import ThresherGroup

app = typer.Typer(
    name="thresher",
    cls=ThresherGroup,
    help="Agentic search and retrieval over your own documents, with an agent that edits its own context.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"thresher {version('thresher')}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Read settings from FILE instead of config.toml.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    ctx.obj = config


for module in (
    corpus,
    search,
    trace,
    evaluate,
    tuning,
    tasks,
    train,
    runs,
    maintenance,
    lifecycle,
    serve,
    mcp,
    keys,
    collected,
    doctor,
    demo,
):
    module.register(app)
