"""`eval`: score ways to search on sets of questions, side by side."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import (
    ChunkerOption,
    EmbedderOption,
    Flags,
    JsonOption,
    settings,
    with_flags,
    with_web_sources,
)
from thresher.api.cli.console import ExitCode, emit, note, out, warn
from thresher.api.cli.train.source import OwnCollectionOption

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.engine.profiles import Profile
    from thresher.engine.search import PolicyFactory
    from thresher.train.evaluation.evaluation import Evaluation
    from thresher.train.evaluation.leakage import LeakGuard
    from thresher.train.evaluation.running import Setup
    from thresher.train.evaluation.systems import System


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("eval")(evaluate)


@with_flags()
def evaluate(
    ctx: typer.Context,
    flags: Flags,
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Folders with queries.jsonl and its documents.", show_default=False),
    ] = None,
    collection: OwnCollectionOption = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="SYSTEM,SYSTEM,…",
            help="Score these side by side: one-search, builtin:rules, builtin:learned+fold, swarm, effort=low, …; "
            "strategies: every strategy; board: all that is usually compared.",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Only the queries of this split.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N queries of each set.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FOLDER",
            help="Write evaluation.json, report.md, report.html and plots there; what was interrupted goes on from it.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="With --report: begin again, whatever is there already.")
    ] = False,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Show and report an evaluation.json again; nothing is run."),
    ] = None,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, help="Ask N questions at once, for model servers.")
    ] = 1,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Size of the context in tokens.")] = None,
    embedder: EmbedderOption = None,
    chunker: ChunkerOption = None,
    leak_guard: Annotated[
        bool, typer.Option("--leak-guard", help="Find web pages that leak their question; score without them, too.")
    ] = False,
    blocked_hosts: Annotated[
        Path | None,
        typer.Option("--blocked-hosts", metavar="FILE", help="More hosts, or host/path, whose pages leak; one a line."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Score ways to search on sets of questions.

    Every question runs through each system, and beside them as one plain search on the same index, which is the
    baseline of all differences. A system is a policy and options with + between them; what is left out is as set.

    Exit status: 3 if a query failed.
    """
    from thresher.api.cli.evaluation_table import print_evaluation
    from thresher.api.errors import UsageError

    if from_file is not None:
        if directories or compare:
            raise UsageError("--from shows what was measured: leave the folders and --compare out")
        data, failed = _read(from_file), False
    elif not directories:
        raise UsageError("name a folder with queries.jsonl and its documents, or an evaluation.json with --from")
    else:
        if fresh and report is None:
            raise UsageError("--fresh is for a report's folder: add --report FOLDER")
        if compare is not None and flags["strategy"] is not None:
            raise UsageError("--compare names the strategies itself: leave --strategy out")
        chosen = settings(ctx, embedder=embedder, chunker=chunker, max_tokens=max_tokens, **with_web_sources(flags))
        setup = _setup(chosen, collection, _leak_guard(leak_guard, blocked_hosts), at_once)
        evaluation = _run(directories, _systems(chosen, compare), setup, split, limit, report, fresh)
        data, failed = evaluation.as_dict(), evaluation.failed
    try:
        if report is not None:
            _write_report(data, report)
        if json:
            emit(data)
        else:
            print_evaluation(out(), data)
    except (AttributeError, KeyError, TypeError) as error:
        if from_file is None:
            raise
        raise UsageError(f"--from: {from_file} is damaged ({error!r}): run the evaluation again") from error
    if failed:
        raise typer.Exit(ExitCode.PARTIAL)


def _run(
    directories: list[Path],
    systems: tuple[System, ...],
    setup: Setup,
    split: str | None,
    limit: int | None,
    report: Path | None,
    fresh: bool,
) -> Evaluation:
    import shlex

    from thresher.api.cli.progress import progress_bar
    from thresher.train.evaluation.running import Watch
    from thresher.train.evaluation.running import evaluate as run

    with progress_bar() as bar:
        return run(
            directories,
            systems,
            setup,
            split=split,
            limit=limit,
            rows=report,
            fresh=fresh,
            command=shlex.join(["thresher", *sys.argv[1:]]),
            watch=Watch(bar.on_ingest, bar.on_query, note),
        )


def _systems(chosen: Settings, compare: str | None) -> tuple[System, ...]:
    """What is measured: the systems compared, or what the settings make.

    Raises:
        UsageError: there is no such system.
    """
    from thresher.api.errors import UsageError
    from thresher.engine.requests import ANY_QUESTION
    from thresher.train.evaluation.systems import InvalidSystem, parse_systems, system_of, usual_systems

    own = system_of(chosen.search_request(ANY_QUESTION), chosen.policy, rerank=chosen.reranker is not None)
    if compare is None:
        return usual_systems(own)
    try:
        return parse_systems(compare, own)
    except InvalidSystem as error:
        raise UsageError(f"--compare: {error}") from error


def _setup(chosen: Settings, collection: str | None, leak_guard: LeakGuard | None, at_once: int) -> Setup:
    """What is the same for all systems, by the settings."""
    from thresher.api.tracing.cost import Cost
    from thresher.api.web import open_web
    from thresher.engine.requests import ANY_QUESTION
    from thresher.train.evaluation.running import Setup

    prices = chosen.prices()

    def price(prompt: int, cached: int, completion: int) -> float | None:
        return Cost(prompt, completion, cached).money(prices)

    choice = asdict(chosen.policy_choice())
    del choice["spec"]  # each system has its own
    return Setup(
        request=chosen.search_request(ANY_QUESTION),
        embedder=chosen.embedder,
        chunker=chosen.chunker,
        ranking=chosen.ranking(),
        open_policy=partial(_policy, chosen),
        open_web=lambda: open_web(chosen.web()),
        open_collection=None if collection is None else partial(_opened, chosen, collection),
        leak_guard=leak_guard,
        price=price if prices.known else None,
        currency=prices.currency,
        at_once=at_once,
        settings={
            "collection": collection,
            "model": {name: value for name, value in choice.items() if value is not None},
            "web": list(chosen.web_providers),
            "prices": asdict(prices) if prices.known else None,
        },
    )


@asynccontextmanager
async def _policy(chosen: Settings, spec: str) -> AsyncIterator[tuple[PolicyFactory, Profile]]:
    from thresher.api.policies import open_policy

    choice = replace(chosen.policy_choice(), spec=spec)
    async with open_policy(choice, chosen.model_api_key) as factory:
        yield factory, choice.engine_profile(factory)


@contextmanager
def _opened(chosen: Settings, name: str) -> Iterator[Collection]:
    from thresher.api.opening import Opener, require_collection

    with Opener(chosen.chroma_spec(serving=False)).open(require_collection(name)) as collection:
        yield collection


def _leak_guard(wanted: bool, blocked_hosts: Path | None) -> LeakGuard | None:
    from thresher.api.errors import UsageError
    from thresher.train.evaluation.leakage import LeakGuard, read_patterns

    if not wanted:
        if blocked_hosts is not None:
            raise UsageError("--blocked-hosts is for the leak guard: add --leak-guard")
        return None
    return LeakGuard(() if blocked_hosts is None else read_patterns(blocked_hosts))


def _read(file: Path) -> dict[str, Any]:
    """An evaluation from before.

    Raises:
        UsageError: the file is none.
    """
    import json

    from thresher.api.errors import UsageError
    from thresher.train.evaluation.evaluation import OBJECT, SCHEMA

    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--from: cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"--from: {file} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("object") != OBJECT:
        raise UsageError(f"--from: {file} is no evaluation; `thresher eval DIR --report FOLDER` writes evaluation.json")
    if data.get("schema") != SCHEMA:
        raise UsageError(f"--from: {file} has schema {data.get('schema')!r}, this release reads {SCHEMA}: run it again")
    return data


def _write_report(data: Mapping[str, Any], folder: Path) -> None:
    """Write the data and what is made of it."""
    import json

    from thresher.corpus.paths import replace_file
    from thresher.train.evaluation.reporting.markdown import markdown
    from thresher.train.evaluation.reporting.page import page
    from thresher.train.evaluation.reporting.plots import draw
    from thresher.train.monitoring.plots import PlotError

    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "evaluation.json", json.dumps(data, ensure_ascii=True, indent=1) + "\n")
    drawn: list[Path] = []
    try:
        drawn = draw(data, folder / "plots")
    except PlotError as error:
        warn(f"the report has no pictures: {error}")
    replace_file(folder / "report.md", markdown(data))
    replace_file(folder / "report.html", page(data, drawn))
    note(f"report: {folder / 'report.md'}, {folder / 'report.html'}")
