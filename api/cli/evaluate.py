"""`eval`: score a policy on a set of questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import (
    EffortOption,
    EmbedderOption,
    FusionOption,
    JsonOption,
    NearDuplicatesOption,
    PolicyOption,
    RerankerOption,
    settings,
)
from thresher.api.cli.console import ExitCode, emit, out, plural, table, warn

if TYPE_CHECKING:
    from rich.console import Console

    from thresher.train.report import EvalReport


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("eval")(evaluate)


def evaluate(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with corpus.jsonl and queries.jsonl.")],
    policy: PolicyOption = None,
    effort: EffortOption = None,
    split: Annotated[str | None, typer.Option("--split", help="Only the queries of this split.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N queries.")] = None,
    embedder: EmbedderOption = None,
    max_results: Annotated[int | None, typer.Option("--max-results", help="Passages each system returns.")] = None,
    fusion: FusionOption = None,
    near_duplicates: NearDuplicatesOption = None,
    reranker: RerankerOption = None,
    json: JsonOption = False,
) -> None:
    """Score a policy on a set of questions.

    Every query runs through the engine, and beside it as one plain search on the same index.

    Exit status: 3 if a query failed.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.train.evaluate import evaluate as run

    chosen = settings(
        ctx,
        policy=policy,
        effort=effort,
        embedder=embedder,
        max_results=max_results,
        fusion=fusion,
        near_duplicates=near_duplicates,
        reranker=reranker,
    )
    with progress_bar() as bar:
        report = run(
            directory,
            policy=chosen.policy,
            effort=chosen.effort,
            split=split,
            limit=limit,
            embedder=chosen.embedder,
            max_results=chosen.max_results,
            ranking=chosen.ranking(),
            on_ingest=bar.on_ingest,
            on_query=bar.on_query,
        )
    if json:
        emit(report.as_dict())
    else:
        _print(out(), report)
    if report.failures:
        raise typer.Exit(ExitCode.PARTIAL)


def _print(console: Console, report: EvalReport) -> None:
    agent, single = report.agent, report.single
    gold = len(report.with_gold)
    without = len(report.queries) - gold
    title = report.dataset if report.split is None else f"{report.dataset} ({report.split})"
    console.print(
        f"{title}: {plural(len(report.queries), 'question')}, {gold:,} with gold; "
        f"{plural(report.documents, 'document')}, {plural(report.chunks, 'chunk')}, "
        f"embedder {report.embedder}; at most {report.max_results} results",
        style="bold",
    )
    ours = f"{report.policy} ({report.effort})"
    listing = table("", "one search", ours, right=("one search", ours))
    for label, name, form in _ROWS:
        listing.add_row(label, form(getattr(single, name)), form(getattr(agent, name)))
    if without:
        said = [f"{system.abstained_without_gold} of {without}" for system in (single, agent)]
        listing.add_row("said insufficient, no gold", *said)
    if gold:
        said = [f"{system.abstained_with_gold} of {gold}" for system in (single, agent)]
        listing.add_row("said insufficient, gold", *said)
    listing.add_row("failed", str(single.failed), str(agent.failed))
    console.print(listing)
    difference = report.difference
    if difference is not None:
        console.print(
            f"recall@10, {report.policy} minus one search: {100 * difference.mean:+.1f} points "
            f"(95 % interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f}, paired bootstrap)"
        )
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in agent.stop_reasons.items())
    console.print(f"ended by: {reasons}; {report.seconds:.0f} s, index {report.prepare_seconds:.0f} s", style="dim")
    for query_id, system, error in report.failures:
        warn(f"{query_id} failed ({system}): {error}")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"


_ROWS = (
    ("recall@5", "recall_5", _percent),
    ("recall@10", "recall_10", _percent),
    ("all gold@10", "all_gold_10", _percent),
    ("precision", "precision", _percent),
    ("answer found", "answer_found", _percent),
    ("trajectory recall", "trajectory_recall", _percent),
    ("prune accuracy", "prune_accuracy", _percent),
    ("passages pruned", "pruned", _count),
    ("turns", "turns", _number),
    ("searches", "searches", _number),
    ("peak context tokens", "peak_context_tokens", _count),
    ("seconds a query, median", "seconds_median", _seconds),
    ("seconds a query, p95", "seconds_p95", _seconds),
)
