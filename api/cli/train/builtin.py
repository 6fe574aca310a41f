"""`train builtin`: learn the choices of the policy that needs no model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import EmbedderOption, JsonOption, settings
from thresher.api.cli.console import ExitCode, emit, note, out, plural, table
from thresher.api.cli.train.source import LimitOption, OwnCollectionOption, SeedOption, SplitOption, task_collection

if TYPE_CHECKING:
    from thresher.train.builtin.comparing import Compared

_METRICS = ("recall@5", "recall@10", "all gold@10")


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(builtin)


def builtin(
    ctx: typer.Context,
    tasks: Annotated[
        list[Path],
        typer.Argument(metavar="TASKS", help="A tasks.jsonl, or folders with queries.jsonl and corpus.jsonl."),
    ],
    out_: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the weights to this .json.")],
    collection: OwnCollectionOption = None,
    split: SplitOption = None,
    dev: Annotated[
        str | None,
        typer.Option("--dev", metavar="SPLIT", help="Compare with the rules on this split (default: dev, if any)."),
    ] = None,
    limit: LimitOption = None,
    rewards: Annotated[
        str | None,
        typer.Option("--rewards", metavar="PROFILE", help="context1, answers or a .toml (default: context1)."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=0, help="Steps of reinforcement learning.")] = 20,
    warm_rollouts: Annotated[
        int,
        typer.Option(
            "--warm-rollouts", metavar="N", min=0, help="Searches a task for the warm start; 0 leaves it out."
        ),
    ] = 2,
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--licence", metavar="TEXT", help="Licence of the tasks, to stand in the file; once, or for each TASKS."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    embedder: EmbedderOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Learn which queries to search, what to prune, when to stop and how to rank, on your own questions.

    Runs on a CPU, in minutes. A set that is not split has two halves, train and dev. `--policy builtin:FILE` then uses
    the weights. The steps are logged beside FILE, for `thresher train watch` and `plot`.

    Exit status: 1 if questions that nothing was learned from do not show that the weights are better than the rules;
    they are written all the same.
    """
    from contextlib import ExitStack
    from datetime import UTC, datetime

    from thresher.api.cli.progress import progress_bar
    from thresher.api.errors import UsageError
    from thresher.engine.policies.builtin.weights import About, save_weights
    from thresher.engine.requests import ANY_QUESTION, SearchRequest
    from thresher.train.builtin.comparing import compared
    from thresher.train.builtin.run import BuiltinTraining, train_builtin
    from thresher.train.builtin.sources import Source
    from thresher.train.rewards.profiles import load_profile
    from thresher.train.rewards.scorer import scorer_for
    from thresher.train.tasks.splits import portion
    from thresher.train.tasks.task import TaskError, load_task_set

    if out_.exists() and not overwrite:
        raise UsageError(f"{out_} is there already: add --overwrite, or name another file")
    if collection is not None and len(tasks) > 1:
        raise UsageError("--collection is for one set of tasks; without it each is searched in its own documents")
    licences = licence or ["not stated"]
    if len(licences) not in (1, len(tasks)):
        raise UsageError(
            f"--licence is given {len(licences)} times for {len(tasks)} TASKS: give one for all, or one for each"
        )
    chosen = settings(ctx, embedder=embedder)
    profile = load_profile(rewards or "context1")
    sets = [load_task_set(path) for path in tasks]
    learned = [portion(own.tasks, split or "train") for own in sets]
    request = SearchRequest(ANY_QUESTION)
    with ExitStack() as stack, progress_bar() as bar:
        opened = [
            stack.enter_context(task_collection(chosen, own, collection, on_ingest=bar.on_ingest)) for own in sets
        ]
        sources = [
            Source(own.name, part[:limit], where) for own, part, where in zip(sets, learned, opened, strict=True)
        ]
        training = BuiltinTraining(steps=steps, warm_rollouts=warm_rollouts, seed=seed)
        log = out_.with_suffix(".log.jsonl")
        if log.exists():
            log.unlink()
        trained = train_builtin(sources, request, profile, training, log=log, tell=note)
        about = About(
            trained_on={source.name: f"{split or 'train'}, {len(source.tasks)} questions" for source in sources},
            licences={source.name: licences[n % len(licences)] for n, source in enumerate(sources)},
            embedder=chosen.embedder if collection is None else opened[0].manifest.embedder.spec,
            reward=profile.name,
            seed=seed,
            date=datetime.now(UTC).date().isoformat(),
            notes=f"warm start of {warm_rollouts} searches a task, best at step {trained.best_step} of {trained.steps}",
        )
        weights = type(trained.weights)(trained.weights.heads, about)
        save_weights(weights, out_)
        reports = []
        for own, where in zip(sets, opened, strict=True):
            try:
                held_out = portion(own.tasks, dev or "dev")[:limit]
            except TaskError:
                if dev is not None:
                    raise
                continue
            reports.append(compared(Source(own.name, held_out, where), weights, request, scorer_for(where, profile)))
    better = bool(reports) and all(report.better for report in reports)
    if json:
        emit(
            {
                "object": "builtin_training",
                "file": str(out_),
                "log": str(log),
                "learned_from": trained.learned_from,
                "set_aside": trained.set_aside,
                "reward": {"rules": trained.rules, "warm": trained.warm, "best": trained.best},
                "best_step": trained.best_step,
                "steps": trained.steps,
                "held_out": [report.as_dict() for report in reports],
                "better": better,
            }
        )
    else:
        console = out()
        console.print(
            f"{plural(trained.learned_from, 'task')} learned from, {trained.set_aside:,} set aside: reward there "
            f"{trained.rules:.3f} by the rules, {trained.warm:.3f} after the warm start, {trained.best:.3f} at "
            f"its best (step {trained.best_step} of {trained.steps})"
        )
        for report in reports:
            _print(console, report)
        if not reports:
            note("there is no dev split, so it is not known whether they are better than the rules")
        console.print(f"{out_}: use it with --policy builtin:{out_}")
    if reports and not better:
        raise typer.Exit(ExitCode.ERROR)


def _print(console: Any, report: Compared) -> None:
    listing = table(f"{report.name}, {len(report.rules):,} held out", "rules", "learned", "gain, 95 % interval")
    rules, learned = report.means(report.rules), report.means(report.learned)
    for name in (*_METRICS, "reward"):
        gain = report.gain(name)
        factor = 1 if name == "reward" else 100
        digits = 3 if name == "reward" else 1
        if gain is None or rules[name] is None or learned[name] is None:
            continue
        listing.add_row(
            name,
            *(f"{factor * (value or 0.0):.{digits}f}" for value in (rules[name], learned[name])),
            f"{factor * gain.mean:+.{digits}f} ({factor * gain.low:+.{digits}f} to {factor * gain.high:+.{digits}f})",
        )
    console.print(listing)
    console.print(f"{report.verdict}; {report.slower:.2f} times the seconds")
