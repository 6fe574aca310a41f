"""`train sft`: train a model on searches that found the evidence."""

from __future__ import annotations

from typing import Annotated

import typer

from thresher.api.cli.common import EmbedderOption, JsonOption, settings
from thresher.api.cli.train.running import (
    ModelOption,
    OutOption,
    OwnSeedOption,
    RunConfigOption,
    SetOption,
    SplitOption,
    StepsOption,
)
from thresher.api.cli.train.source import LimitOption, OwnCollectionOption, TasksArgument


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(sft)


def sft(
    ctx: typer.Context,
    tasks: TasksArgument,
    out: OutOption,
    model: ModelOption = None,
    teacher: Annotated[
        str | None,
        typer.Option("--teacher", metavar="SPEC", help="Who is imitated: builtin (default), chat:MODEL@URL, …"),
    ] = None,
    recorded: Annotated[
        list[str] | None,
        typer.Option("--recorded", metavar="PATH", help="Recorded searches to learn from, too; may be repeated."),
    ] = None,
    collection: OwnCollectionOption = None,
    config: RunConfigOption = None,
    sets: SetOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    steps: StepsOption = None,
    seed: OwnSeedOption = None,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model on searches of a teacher that found the evidence.

    The tasks are searched by the teacher, as the model would write it; searches that found too little are left out, and
    only what the model should write is trained. At the end DIR holds a model folder for the policy hf:DIR/model.
    Started again, a run that was killed goes on from its last checkpoint.
    """
    from thresher.api.cli.console import emit, note
    from thresher.api.cli.console import out as stdout
    from thresher.api.cli.train.running import collection_opener, print_evaluations, run_settings, told
    from thresher.train.sft.run import train_sft
    from thresher.train.sft.settings import SftSettings

    chosen = settings(ctx, embedder=embedder)
    resolved: SftSettings = run_settings(
        SftSettings,
        chosen,
        config,
        sets,
        tasks__path=tasks,
        tasks__split=split,
        tasks__limit=limit,
        model__path=model,
        corpus__collection=collection,
        teacher__policy=teacher,
        teacher__recorded=recorded or None,
        optimiser__steps=steps,
        seed=seed,
    )
    report = train_sft(resolved, out, open_collection=collection_opener(chosen, resolved.corpus.collection), tell=told)
    if report.model is None:  # the first process tells
        return
    if json:
        emit(report.as_dict())
        return
    print_evaluations(report.before, report.after)
    stdout().print(f"{report.model}: trained on {report.rows:,} rows, use it with --policy hf:{report.model}")
    note(f"{report.steps:,} steps, {report.seconds:,.0f} s; curves: thresher train plot {report.out}")
