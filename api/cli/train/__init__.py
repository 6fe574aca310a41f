"""`train`: fine-tune the agent on your own questions and answers."""

from __future__ import annotations

import typer

from thresher.api.cli.train import builtin, hacks, judge, loop, plot, rl, sft, tasks, watch

train = typer.Typer(
    help="Fine-tune the agent on your own questions and answers.", no_args_is_help=True, rich_markup_mode=None
)

for module in (tasks, hacks, judge, sft, rl, watch, plot, builtin, loop):
    module.register(train)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(train, name="train")
