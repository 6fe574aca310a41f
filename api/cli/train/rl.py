"""`train rl`: train a model by its own searches."""

from __future__ import annotations

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
    app.command()(rl)


def rl(
    ctx: typer.Context,
    tasks: TasksArgument,
    out: OutOption,
    model: ModelOption = None,
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
    """Train a model by reinforcement learning on its own searches.

    Each task is searched several times; what a search earns against the others of its task is what it teaches. The
    model is evaluated before and after on the split dev. At the end DIR holds a model folder for the policy
    hf:DIR/model. Started again, a run that was killed goes on from its last checkpoint.
    """
    from thresher.api.cli.console import emit, note, warn
    from thresher.api.cli.console import out as stdout
    from thresher.api.cli.train.running import collection_opener, print_evaluations, run_settings, told
    from thresher.train.trainer.run import train_rl
    from thresher.train.trainer.settings import TrainSettings

    chosen = settings(ctx, embedder=embedder)
    resolved: TrainSettings = run_settings(
        TrainSettings,
        chosen,
        config,
        sets,
        tasks__path=tasks,
        tasks__split=split,
        tasks__limit=limit,
        model__path=model,
        corpus__collection=collection,
        optimiser__steps=steps,
        seed=seed,
    )
    report = train_rl(resolved, out, open_collection=collection_opener(chosen, resolved.corpus.collection), tell=told)
    if report.model is None:  # the first process tells
        return
    if json:
        emit(report.as_dict())
        return
    print_evaluations(report.before, report.after)
    stdout().print(f"{report.model}: version {report.version} of the weights, use it with --policy hf:{report.model}")
    for warning in report.warnings:
        warn(warning)
    note(f"{report.steps:,} steps, {report.seconds:,.0f} s; curves: thresher train plot {report.out}")
