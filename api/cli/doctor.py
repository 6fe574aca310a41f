"""`doctor`: where settings come from, and whether this installation works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from thresher.api.cli.common import JsonOption
from thresher.api.cli.console import ExitCode, clean, emit, out, table

if TYPE_CHECKING:
    from thresher.api.config import Resolved


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(doctor)


def doctor(ctx: typer.Context, json: JsonOption = False) -> None:
    """Show settings and check the installation.

    Every setting is shown with where its value comes from. Exit status: 1 if a check fails.
    """
    from thresher.api.cli.checks import run_checks
    from thresher.api.config import load_settings

    config = ctx.find_root().obj
    resolved = load_settings(config=config if isinstance(config, Path) else None)
    rows = _settings(resolved)
    checks = run_checks(resolved)
    ok = all(check["ok"] for check in checks)
    if json:
        emit({"object": "doctor", "ok": ok, "settings": rows, "checks": checks})
    else:
        listing = table("setting", "value", "from", "meaning")
        for row in rows:
            value = "" if row["value"] is None else str(row["value"])
            listing.add_row(row["name"], clean(value), clean(row["source"]), row["description"])
        out().print(listing)
        listing = table("check", "", "")
        for check in checks:
            listing.add_row(check["name"], "ok" if check["ok"] else "FAILED", clean(check["detail"]))
        out().print(listing)
    if not ok:
        raise typer.Exit(ExitCode.ERROR)


def _settings(resolved: Resolved) -> list[dict[str, Any]]:
    values = resolved.settings.model_dump(mode="json")  # a key is dumped as asterisks
    return [
        {"name": name, "value": values[name], "source": resolved.origins[name], "description": field.description}
        for name, field in type(resolved.settings).model_fields.items()
    ]
