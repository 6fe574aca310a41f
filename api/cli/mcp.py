"""`mcp`: the MCP server for clients that start a program and speak to it by stdin and stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import Flags, settings, with_flags
from thresher.api.cli.console import ExitCode, note

if TYPE_CHECKING:
    from thresher.api.config import Settings


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(mcp)


@with_flags("policy", "model_url", "profile", "effort", "strategy", "rollouts", "swarm", "answer")
def mcp(
    ctx: typer.Context,
    flags: Flags,
    collections: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", metavar="NAME", help="Offer only this one; may be repeated. (default: all)"),
    ] = None,
) -> None:
    """Serve MCP on stdin and stdout, for an agent's client to start.

    Where a `thresher serve` runs, calls go through it, and its policy decides. Else this process opens collections
    when they are first used, and gives them back when nobody has asked for a minute or the client ends; meanwhile
    other commands on them go through it.

    A server offers the same at /mcp, by HTTP.
    """
    from thresher.api.errors import ConfigError
    from thresher.api.mcp import INSTALL, installed
    from thresher.api.opening import require_collection

    if not installed():
        raise ConfigError(f"the MCP server needs a package more: {INSTALL}")
    only = tuple(dict.fromkeys(collections or ()))
    chosen = settings(ctx, collection=only[0] if only else None, **flags)
    for name in only:
        require_collection(name)
    given = [name for name, value in flags.items() if value is not None]
    try:
        _serve(chosen, only, given)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _serve(chosen: Settings, only: tuple[str, ...], given: list[str]) -> None:
    from thresher.api.http.logs import configure_logging
    from thresher.api.mcp.pipes import serve_stdio

    secrets = [value.get_secret_value() for value in (chosen.api_key, chosen.model_api_key) if value is not None]
    configure_logging(chosen.log_format, chosen.log_level, secrets=secrets)

    def chosen_for(what: str, elsewhere: bool) -> None:
        note(f"MCP calls go to {what}")
        if elsewhere and given:
            note(f"its settings hold there, not {', '.join('--' + name.replace('_', '-') for name in given)}")

    serve_stdio(chosen, only, on_choice=chosen_for)
