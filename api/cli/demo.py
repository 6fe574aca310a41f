"""`demo`: index the sample corpus and answer a question that takes several steps."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import EmbedderOption, Flags, JsonOption, settings, with_flags
from thresher.api.cli.console import clean, note, out, plural

if TYPE_CHECKING:
    from thresher.train.tasks.task import Task

QUESTION = "s22"
"""The sample question asked by default: a plain search of the same length finds only two of its three documents."""


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(demo)


@with_flags("effort", "policy", "model_url", "profile", "strategy", "rollouts", "swarm", "answer")
def demo(
    ctx: typer.Context,
    flags: Flags,
    question: Annotated[str | None, typer.Argument(help="A question of your own about the sample corpus.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the index as collection `demo` instead of a temporary one.")
    ] = False,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Index the sample corpus and answer a question.

    The question takes several steps; what the agent searched, kept, pruned and returned is shown.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.api.cli.search import exit_code, run_search, show_response
    from thresher.api.schema import search_response
    from thresher.corpus.collection import Collection
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.ingestion.sync import sync
    from thresher.corpus.paths import collection_path
    from thresher.train.tasks.task import load_tasks

    chosen = settings(ctx, embedder=embedder, **flags)
    with ExitStack() as stack:
        sample = stack.enter_context(as_file(files("thresher.corpus") / "sample"))
        task = None if question else _sample_task(load_tasks(sample / "queries.jsonl"))
        text = question or (task.question if task else "")
        if keep:
            path = collection_path("demo")
        else:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="thresher-demo-"))) / "demo"
        collection = stack.enter_context(Collection.open_or_create(path, load_embedder(chosen.embedder)))
        with progress_bar() as bar:
            report = sync(collection, sample / "docs", on_progress=bar.on_ingest)
        stats = collection.stats()
        note(
            f"sample corpus: {plural(stats.documents, 'document')} in {plural(stats.chunks, 'passage')} "
            f"({report.seconds:.1f} s)"
        )
        request = chosen.search_request(text, max_results=5)
        policy, key = chosen.policy_choice(), chosen.model_api_key
        result = run_search(collection, policy, request, key=key, save=chosen.save_traces)
    response = search_response(result, include_trace=True)
    saved, prices = chosen.save_traces, chosen.prices()
    show_response(response, with_trace=True, as_json=json, prices=prices, saved=saved, brief=True)
    if task is not None and not json:
        _compare(task, {item.document_id for item in result.results})
    raise typer.Exit(exit_code(result))


def _sample_task(tasks: list[Task]) -> Task:
    return next((task for task in tasks if task.id == QUESTION), tasks[0])


def _compare(task: Task, returned: set[str]) -> None:
    """Hold the result against the sample's own answer."""
    console = out()
    console.print(f"\nexpected answer: {clean(task.answers[0])}")
    for document_id in task.gold_ids:
        console.print(f"  {'found ' if document_id in returned else 'MISSED'}  {document_id}")
