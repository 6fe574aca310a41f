"""`train plot`: the curves of a run as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thresher.api.cli.common import JsonOption


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(plot)


def plot(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a training run, or its log.jsonl.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for the pictures (default: DIR/plots).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Draw a run: its reward and every term of it, what searches were like, and what training changed.

    Writes PNG files, one for each subject that the log has numbers of.
    """
    from thresher.api.cli.console import emit
    from thresher.api.cli.console import out as stdout
    from thresher.train.monitoring.plots import plot_run

    files = plot_run(run, out)
    if json:
        emit({"files": [str(file) for file in files]})
        return
    for file in files:
        stdout().print(str(file))
