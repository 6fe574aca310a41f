"""`train`: fine-tune the agent on your own questions and answers."""

from __future__ import annotations

import typer

train = typer.Typer(
    help="Fine-tune the agent on your own questions and answers.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(train, name="train")
