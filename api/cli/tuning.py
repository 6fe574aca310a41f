"""`tune`: learn how to fuse dense search and BM25 from labelled questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thresher.api.cli.common import CollectionOption, JsonOption, opener, settings
from thresher.api.cli.console import emit, out


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(tune)


def tune(
    ctx: typer.Context,
    questions: Annotated[
        Path, typer.Argument(metavar="FILE", help='JSON lines: {"id": …, "question": …, "gold_ids": [document ids]}.')
    ],
    collection: CollectionOption = None,
    split: Annotated[str | None, typer.Option("--split", help="Only the questions of this split.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report; keep what the collection uses.")] = False,
    json: JsonOption = False,
) -> None:
    """Learn from labelled questions how to fuse dense search and BM25.

    What is learned is kept only if held-out questions show that it helps; it is used where the setting `fusion` is
    `tuned`.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.operations.tuning import TUNE, LabelledQuestion, TuneRequest
    from thresher.train.tasks.task import read_tasks

    chosen = settings(ctx, collection=collection)
    tasks = [task for task in read_tasks(questions) if task.gold_ids and split in (None, task.split)]
    labelled = [LabelledQuestion(question=task.question, gold_ids=list(task.gold_ids)) for task in tasks]
    request = TuneRequest(questions=labelled, save=not dry_run)
    with progress_bar() as bar:
        report = perform(TUNE, request, chosen.collection, opener=opener(chosen), on_event=bar.on_event)
    if json:
        emit(report)
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    console = out()
    weight = "" if report["alpha"] is None else f", best weight {report['alpha']:g}"
    console.print(
        f"{report['collection']}: {report['informative']:,} of {report['questions']:,} questions tell{weight}"
    )
    console.print(
        f"nDCG@10 {report['rrf_ndcg']:.3f} by rank, {report['tuned_ndcg']:.3f} tuned on held-out questions "
        f"({report['gain']:+.3f}, 95 % interval {report['gain_low']:+.3f} to {report['gain_high']:+.3f})"
    )
    verdict = "adopted" if report["adopted"] else "not adopted"
    console.print(f"{verdict if report['saved'] else f'would be {verdict}'}: {report['reason']}")
