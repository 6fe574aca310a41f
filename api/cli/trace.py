"""`trace show`, `trace export` and `trace ls`: how a search went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import JsonOption, refuse_existing, settings
from thresher.api.cli.console import clean, emit, note, one_line, out, table, warn

if TYPE_CHECKING:
    from thresher.engine.trajectory import Trajectory

TraceArgument = Annotated[
    str, typer.Argument(metavar="ID|FILE", help="Id of a search, its beginning, `last`, or a file.")
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = typer.Typer(help="Show how past searches went.", no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show)
    group.command("export")(export)
    group.command("ls")(ls)
    app.add_typer(group, name="trace")


def show(ctx: typer.Context, trace: TraceArgument, json: JsonOption = False) -> None:
    """Show every turn of a search: queries, what was kept and pruned, receipts, tokens and costs."""
    from thresher.api.cli.trace_text import print_trajectory
    from thresher.api.schema import answer_fields
    from thresher.api.traces import find_trace, read_answer

    chosen = settings(ctx)
    path = find_trace(trace)
    trajectories = _read(path)
    answer = read_answer(path)
    if json:
        data = [trajectory.model_dump(mode="json") for trajectory in trajectories]
        emit({"object": "list", "data": data, **answer_fields(answer)})
        return
    for trajectory in trajectories:
        print_trajectory(out(), trajectory, answer, prices=chosen.prices())


def export(
    ctx: typer.Context,
    trace: TraceArgument,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Write the page to FILE.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Even if FILE exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a search as one HTML page that needs no network: turns, passages, context, answer and costs.

    It holds the passages that the search saw; share it with those who may read them.
    """
    from thresher.api.errors import UsageError
    from thresher.api.traces import find_trace, read_answer
    from thresher.api.tracing import read_trace
    from thresher.api.tracing.page import trace_page

    chosen = settings(ctx)
    path = find_trace(trace)
    trajectories = _read(path)
    if len(trajectories) > 1:
        raise UsageError(f"{path} holds {len(trajectories)} searches, and a page shows one: give the id of a search")
    if html.is_dir():
        raise UsageError(f"{html} is a folder; name a file in it")
    refuse_existing(html, overwrite)
    page = trace_page(read_trace(trajectories[0], read_answer(path)), chosen.prices())
    html.write_text(page, encoding="utf-8")
    if json:
        emit({"object": "trace_export", "id": trajectories[0].id, "file": str(html), "bytes": len(page.encode())})
    else:
        note(f"wrote {html}")


def _read(path: Path) -> list[Trajectory]:
    from thresher.api.traces import TraceError, read_traces

    trajectories = list(read_traces(path))
    if not trajectories:
        raise TraceError(f"{path} is empty: its search was cut off while saving; `thresher trace ls` lists the others")
    return trajectories


def ls(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, newest first.")] = 20,
    json: JsonOption = False,
) -> None:
    """List saved searches, newest first."""
    from thresher.api.traces import TraceError, read_traces, recent_traces

    settings(ctx)
    found = []
    for path in recent_traces()[:limit]:
        try:
            found += [(path.stem, trajectory) for trajectory in read_traces(path)]
        except TraceError as error:
            warn(str(error))
    if json:
        rows = [
            {
                "id": trajectory.id,
                "question": trajectory.question,
                "started_at": trajectory.started_at,
                "policy": trajectory.policy,
                "turns": len(trajectory.turns),
                "stop_reason": trajectory.stop_reason,
                "sufficient": trajectory.sufficient,
            }
            for _, trajectory in found
        ]
        emit({"object": "list", "data": rows})
        return
    if not found:
        out().print("no traces yet; `thresher search` writes them")
        return
    listing = table("id", "started", "turns", "ended", "question", right=("turns",), whole=("id", "started"))
    for name, trajectory in found:
        started = trajectory.started_at[:19].replace("T", " ")
        turns = str(len(trajectory.turns))
        listing.add_row(clean(name), started, turns, trajectory.stop_reason, one_line(trajectory.question, 70))
    out().print(listing)
