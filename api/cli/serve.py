"""`serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from thresher.api.cli.common import Flags, JsonOption, settings, with_flags
from thresher.api.cli.console import ExitCode, emit, err


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(serve)


@with_flags("policy", "model_url", "profile", "strategy", "rollouts", "swarm", "answer", "web_providers")
def serve(
    ctx: typer.Context,
    flags: Flags,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address to bind (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="Port to bind (default: 8420); 0: a free one.")
    ] = None,
    collections: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", metavar="NAME", help="Serve only this one; may be repeated. (default: all)"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Serve the HTTP API, MCP at /mcp, and a page at /ui.

    The server owns the collections it has opened until it stops; other commands on them go through it. Those that -c
    names are opened at its start, others when they are first used. The policy is the server's; strategy, rollouts,
    swarm and answer are what a request gets that does not say otherwise.

    An address that other machines can reach needs a key: `thresher keys create`, or THRESHER_API_KEY. Limits, logs and
    the rest are settings, which `thresher doctor` lists.
    """
    from thresher.api.http.run import run
    from thresher.api.opening import require_collection

    only = tuple(dict.fromkeys(collections or ()))
    chosen = settings(ctx, host=host, port=port, collection=only[0] if only else None, **flags)
    for name in only:
        require_collection(name)

    def ready(url: str) -> None:
        if json:
            emit({"object": "server", "url": url})
        err().print(f"serving on {url}, a page to search with at {url}/ui (Ctrl-C stops)")

    try:
        run(chosen, only=only, on_ready=ready)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
