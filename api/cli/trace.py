"""`trace show` and `trace ls`: how a search went."""

from __future__ import annotations

from typing import Annotated

import typer

from thresher.api.cli.common import JsonOption, settings
from thresher.api.cli.console import clean, emit, one_line, out, table, warn


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = typer.Typer(help="Show how past searches went.", no_args_is_help=True, rich_markup_mode=None)
    group.command("show")(show)
    group.command("ls")(ls)
    app.add_typer(group, name="trace")


def show(
    ctx: typer.Context,
    trace: Annotated[str, typer.Argument(metavar="ID|FILE", help="Id of a search, its beginning, `last`, or a file.")],
    json: JsonOption = False,
) -> None:
    """Show every turn of a search: queries, what was kept and pruned, receipts, tokens."""
    from thresher.api.cli.render import print_trajectory
    from thresher.api.traces import TraceError, find_trace, read_traces

    settings(ctx)
    path = find_trace(trace)
    trajectories = list(read_traces(path))
    if not trajectories:
        raise TraceError(f"{path} is empty: its search was cut off while saving; `thresher trace ls` lists the others")
    if json:
        emit({"object": "list", "data": [trajectory.model_dump(mode="json") for trajectory in trajectories]})
        return
    for trajectory in trajectories:
        print_trajectory(out(), trajectory)


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
