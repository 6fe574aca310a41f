"""The command group: turns errors into one line and an exit code, for every command alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from thresher.api.cli.console import STDOUT, ExitCode, abandon, clean, emit, err
from thresher.api.errors import Problem, UsageError, explain

_JSON = "thresher.json"
_USAGE = frozenset(
    {
        "usage",
        "invalid_config",
        "invalid_request",
        "invalid_query",
        "unknown_provider",
        "missing_package",
        "unusable_pages",
        "unusable_tape",
        "invalid_filter",
        "invalid_ranking",
        "unknown_chunker",
        "unknown_embedder",
    }
)
INTERRUPTED = "interrupted: finished work is kept; run the same command again to go on where it stopped"


class ThresherGroup(TyperGroup):
    """Expected errors end a command with one line on stderr, and with `--json` also with a document on stdout.

    Only bugs show a traceback.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember whether JSON was asked for before anything can go wrong."""
        ctx.meta[_JSON] = "--json" in args
        with _errors_told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _errors_told(ctx):
            return super().invoke(ctx)


@contextmanager
def _errors_told(ctx: Any) -> Iterator[None]:
    """End the process with one line and an exit code where the block raises an expected error."""
    as_json = bool(ctx.meta.get(_JSON))
    try:
        yield
    except KeyboardInterrupt:
        _tell(Problem("interrupted", "interrupted", INTERRUPTED, 499), f"\n{INTERRUPTED}", as_json=as_json)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        # typer carries click, or a copy of it, depending on its version: know its errors by what they can do.
        if hasattr(error, "format_message") and type(error).__name__ != "NoArgsIsHelpError":
            error = UsageError(f"{error.format_message().rstrip('.')}; see `{_command(ctx, error)} --help`")
        if getattr(error, "filename", None) == STDOUT:
            abandon(sys.stdout)
        problem = explain(error)
        if problem is None:
            raise
        _tell(problem, f"error: {clean(problem.message)}", as_json=as_json, style="red")
        raise typer.Exit(ExitCode.USAGE if problem.code in _USAGE else ExitCode.ERROR) from None


def _tell(problem: Problem, line: str, *, as_json: bool, style: str | None = None) -> None:
    if as_json:
        try:
            emit(problem.document())
        except OSError:
            abandon(sys.stdout)
    try:
        err().print(line, style=style)
    except OSError:
        abandon(sys.stderr)


def _command(ctx: Any, error: Exception) -> str:
    return str(getattr(getattr(error, "ctx", None) or ctx, "command_path", "thresher"))
