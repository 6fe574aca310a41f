"""`eval`: score a policy on a set of questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import EmbedderOption, Flags, JsonOption, settings, with_flags, with_web_sources
from thresher.api.cli.console import ExitCode, emit, out, plural, table, warn
from thresher.api.cli.train.source import OwnCollectionOption

if TYPE_CHECKING:
    from rich.console import Console

    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.engine.requests import SearchRequest
    from thresher.train.evaluation.leakage import LeakGuard
    from thresher.train.evaluation.report import Comparison, LeakCounts
    from thresher.train.metrics.retrieval import Interval


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("eval")(evaluate)


@with_flags()
def evaluate(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with queries.jsonl and its documents.")],
    flags: Flags,
    collection: OwnCollectionOption = None,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="HOW,HOW,…", help="Score these strategies side by side; all: every one."),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Only the queries of this split.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N queries.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Size of the context in tokens.")] = None,
    embedder: EmbedderOption = None,
    leak_guard: Annotated[
        bool, typer.Option("--leak-guard", help="Find web pages that leak their question; score without them, too.")
    ] = False,
    blocked_hosts: Annotated[
        Path | None,
        typer.Option("--blocked-hosts", metavar="FILE", help="More hosts, or host/path, whose pages leak; one a line."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Score a policy on a set of questions.

    Every query runs through the engine, and beside it as one plain search on the same index.

    Exit status: 3 if a query failed.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.api.policies import open_policy
    from thresher.api.web import open_web
    from thresher.train.evaluation.evaluate import compare as run

    chosen = settings(ctx, embedder=embedder, max_tokens=max_tokens, **with_web_sources(flags))
    choice = chosen.policy_choice()
    guard = _leak_guard(leak_guard, blocked_hosts)
    ways = _ways(chosen, compare, flags["strategy"])
    with progress_bar() as bar:
        comparison = run(
            directory,
            ways,
            policy=chosen.policy,
            open_policy=lambda: open_policy(choice, chosen.model_api_key),
            open_web=lambda: open_web(chosen.web()),
            open_collection=None if collection is None else partial(_opened, chosen, collection),
            leak_guard=guard,
            profile=choice.engine_profile(choice.make(chosen.model_api_key)),
            split=split,
            limit=limit,
            embedder=chosen.embedder,
            ranking=chosen.ranking(),
            on_ingest=bar.on_ingest,
            on_query=bar.on_query,
        )
    if json:
        emit(comparison.as_dict() if compare else comparison.reports[0].as_dict())
    else:
        _print(out(), comparison)
    if any(report.failures for report in comparison.reports):
        raise typer.Exit(ExitCode.PARTIAL)


@contextmanager
def _opened(chosen: Settings, name: str) -> Iterator[Collection]:
    from thresher.api.opening import Opener, require_collection

    with Opener(chosen.chroma_spec(serving=False)).open(require_collection(name)) as collection:
        yield collection


def _ways(chosen: Settings, compare: str | None, strategy: str | None) -> dict[str, SearchRequest]:
    """How to search, by what the table calls it: as the settings say, or with each of the strategies compared.

    Raises:
        UsageError: there is no such strategy, or one is named by flag too.
    """
    from thresher.api.errors import UsageError
    from thresher.engine.requests import Strategy
    from thresher.train.evaluation.evaluate import ANY_QUESTION

    if compare is None:
        return {f"{chosen.policy} ({chosen.effort})": chosen.search_request(ANY_QUESTION)}
    if strategy is not None:
        raise UsageError("--compare names the strategies itself: leave --strategy out")
    known = [str(strategy) for strategy in Strategy]
    names = known if compare == "all" else [name.strip() for name in compare.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--compare: there is no strategy {unknown[0]!r}; choose from {', '.join(known)}, or all")
    return {name: chosen.search_request(ANY_QUESTION, strategy=Strategy(name)) for name in names}


def _leak_guard(wanted: bool, blocked_hosts: Path | None) -> LeakGuard | None:
    from thresher.api.errors import UsageError
    from thresher.train.evaluation.leakage import LeakGuard, read_patterns

    if not wanted:
        if blocked_hosts is not None:
            raise UsageError("--blocked-hosts is for the leak guard: add --leak-guard")
        return None
    return LeakGuard(() if blocked_hosts is None else read_patterns(blocked_hosts))


def _print(console: Console, comparison: Comparison) -> None:
    report = comparison.reports[0]
    gold = len(report.with_gold)
    without = len(report.queries) - gold
    title = report.dataset if report.split is None else f"{report.dataset} ({report.split})"
    policy = f"; policy {report.policy} ({report.effort})" if len(comparison.ways) > 1 else ""
    console.print(
        f"{title}: {plural(len(report.queries), 'question')}, {gold:,} with gold; "
        f"{plural(report.documents, 'document')}, {plural(report.chunks, 'chunk')}, "
        f"embedder {report.embedder}; at most {report.max_results} results{policy}",
        style="bold",
    )
    leaks = {"one search": report.single_leaks, **{name: way.agent_leaks for name, way in comparison.ways.items()}}
    systems = {"one search": report.single, **{name: report.agent for name, report in comparison.ways.items()}}
    for name in list(systems):
        if (counts := leaks[name]) is not None and counts.leaky_pages:
            systems[f"{name}, without leaks"] = counts.without
    listing = table("", *systems, right=tuple(systems))
    parallel = any(way.swarm or way.rollouts > 1 for way in comparison.reports)
    for label, name, form in _ROWS:
        values = [getattr(system, name) for system in systems.values()]
        if (name in _IF_PARALLEL and not parallel) or (name in _IF_ANY and not any(values)):
            continue
        listing.add_row(label, *map(form, values))
    if without:
        said = [f"{system.abstained_without_gold} of {without}" for system in systems.values()]
        listing.add_row("said insufficient, no gold", *said)
    if gold:
        said = [f"{system.abstained_with_gold} of {gold}" for system in systems.values()]
        listing.add_row("said insufficient, gold", *said)
    listing.add_row("failed", *[str(system.failed) for system in systems.values()])
    console.print(listing)
    for name, way in comparison.ways.items():
        who = report.policy if len(comparison.ways) == 1 else name
        _print_difference(console, f"{who} minus one search", way.difference)
    for name in list(comparison.ways)[1:]:
        _print_difference(console, f"{name} minus {next(iter(comparison.ways))}", comparison.difference(name))
    for name, way in comparison.ways.items():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in way.agent.stop_reasons.items())
        console.print(f"{'' if len(comparison.ways) == 1 else f'{name} '}ended by: {reasons}", style="dim")
    for name, counts in leaks.items():
        if counts is not None:
            _print_leaks(console, name, counts)
    console.print(f"{report.seconds:.0f} s, index {report.prepare_seconds:.0f} s", style="dim")
    for way in comparison.reports:
        for query_id, system, error in way.failures:
            warn(f"{query_id} failed ({system}): {error}")


def _print_leaks(console: Console, name: str, leaks: LeakCounts) -> None:
    if not leaks.web_pages:
        console.print(f"leak guard, {name}: no web pages were shown")
        return
    reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in leaks.reasons.items())
    console.print(
        f"leak guard, {name}: {leaks.leaky_pages:,} of {plural(leaks.web_pages, 'web page')} leak, "
        f"on {plural(leaks.questions, 'question')}{f' ({reasons})' if reasons else ''}"
    )


def _print_difference(console: Console, what: str, difference: Interval | None) -> None:
    if difference is not None:
        console.print(
            f"recall@10, {what}: {100 * difference.mean:+.1f} points "
            f"(95 % interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f}, paired bootstrap)"
        )


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
    ("answer right", "answer_right", _percent),
    ("trajectory recall", "trajectory_recall", _percent),
    ("prune accuracy", "prune_accuracy", _percent),
    ("passages pruned", "pruned", _count),
    ("turns", "turns", _number),
    ("searches", "searches", _number),
    ("peak context tokens", "peak_context_tokens", _count),
    ("prompt tokens, all turns", "prompt_tokens", _count),
    ("tokens written", "completion_tokens", _count),
    ("tokens prefilled again", "reprefill_tokens", _count),
    ("recoveries", "recoveries", _count),
    ("sub-agents", "subagents", _number),
    ("sub-agents of use", "useful_subagents", _number),
    ("critical steps", "critical_steps", _number),
    ("turns a critical step", "speedup", _number),
    ("seconds a query, median", "seconds_median", _seconds),
    ("seconds a query, p95", "seconds_p95", _seconds),
)
_IF_ANY = frozenset({"answer_right", "recoveries"})
"""Rows that are left out where no system has anything to show."""
_IF_PARALLEL = frozenset({"subagents", "useful_subagents", "critical_steps", "speedup"})
"""Rows for swarms and rollouts."""
