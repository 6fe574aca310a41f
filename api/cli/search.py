"""`search`: ask a collection a question."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import (
    CollectionOption,
    Flags,
    JsonOption,
    absolute_policy,
    absolute_spec,
    absolute_web,
    opener,
    settings,
    with_flags,
    with_web_sources,
)
from thresher.api.cli.console import ExitCode, emit, err, note, one_line, out, warn

if TYPE_CHECKING:
    from pydantic import SecretStr

    from thresher.api.config import Settings
    from thresher.api.operations.searching import SearchOperationRequest
    from thresher.api.policies import PolicyChoice
    from thresher.api.schema import SearchResponse
    from thresher.api.tracing.cost import Prices
    from thresher.corpus.collection import Collection
    from thresher.engine.requests import SearchRequest, SearchResult


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(search)


@with_flags()
def search(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    flags: Flags,
    collection: CollectionOption = None,
    max_turns: Annotated[int | None, typer.Option("--max-turns", help="Turns at most.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Size of the context in tokens.")] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds after which to return what was found.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="JSON", help='As {"type": "eq", "key": "year", "value": 2024}.')
    ] = None,
    batch_edits: Annotated[
        bool, typer.Option("--batch-edits", help="Apply prunes in batches, which spares a model server's prefix cache.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", "-v", help="Show every turn, or put it into the JSON.")] = False,
    json: JsonOption = False,
) -> None:
    """Ask a collection a question.

    Searches over several turns and prints the evidence, best first.

    Exit status: 0 evidence found, 3 ended by a limit, 4 insufficient evidence.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.operations.searching import SEARCH
    from thresher.api.schema import SearchResponse

    limits = {"max_turns": max_turns, "max_tokens": max_tokens, "deadline_s": deadline}
    chosen = settings(ctx, collection=collection, **with_web_sources(flags), **limits)
    # What was asked for by flag is named, so that it is refused and not dropped where it cannot be.
    named = {name: flags[name] for name in ("rollouts", "swarm")}
    request = _request(question, chosen, filter, named, batch_edits=batch_edits, trace=trace)
    with _live() as on_event:
        found = perform(
            SEARCH,
            request,
            chosen.collection,
            opener=opener(chosen),
            model_key=chosen.model_api_key,
            on_event=on_event,
        )
    response = SearchResponse.model_validate(found)
    show_response(response, with_trace=trace, as_json=json, prices=chosen.prices(), saved=chosen.save_traces)
    raise typer.Exit(exit_code(response))


def run_search(
    collection: Collection, policy: PolicyChoice, request: SearchRequest, *, key: SecretStr | None, save: bool
) -> SearchResult:
    """Run one search in this process, show what happens on a terminal, and keep its trajectory if `save`.

    The first Ctrl-C cancels the search, which then returns what it has; the second one interrupts the process.
    """
    from thresher.api.cli.perform import interruptible
    from thresher.api.operations.base import Reporter
    from thresher.api.operations.searching import Searching, run_search

    with _live() as on_event:
        reporter = Reporter(on_event)
        with interruptible(reporter.cancel):
            return run_search(Searching(collection, policy, key), request, reporter, save=save)


def show_response(
    response: SearchResponse, *, with_trace: bool, as_json: bool, prices: Prices, saved: bool, brief: bool = False
) -> None:
    """Print a result, warnings on stderr; `brief` shortens the trace."""
    from thresher.api.cli.render import print_results
    from thresher.api.cli.trace_text import print_trajectory
    from thresher.api.traces import trace_path
    from thresher.engine.trajectory import Trajectory

    for warning in response.warnings:
        warn(one_line(warning, 400))
    if as_json:
        emit(response.model_dump(mode="json", exclude=None if with_trace else {"trajectory"}))
        return
    console = out()
    if with_trace and response.trajectory is not None:
        trajectory = Trajectory.model_validate(response.trajectory)
        print_trajectory(console, trajectory, prices=prices, brief=brief)
        console.print()
    print_results(console, response)
    if saved and trace_path(response.id).is_file():
        note(f"`thresher trace show {response.id}` shows how it was found")


def exit_code(result: SearchResponse | SearchResult) -> ExitCode:
    """The exit code that tells how a search ended."""
    if result.stop_reason == "cancelled":
        return ExitCode.INTERRUPTED
    if result.status == "failed":
        return ExitCode.ERROR
    if result.status == "partial":
        return ExitCode.PARTIAL
    if result.sufficient is False or not result.results:
        return ExitCode.INSUFFICIENT
    return ExitCode.OK


def _request(
    question: str, chosen: Settings, filter_json: str | None, named: Flags, *, batch_edits: bool, trace: bool
) -> SearchOperationRequest:
    from thresher.api.operations.searching import SearchOperationRequest
    from thresher.engine.requests import Edits

    asked = chosen.search_request(
        question,
        filters=None if filter_json is None else parse_filter_json(filter_json),
        edits=Edits.BATCHED if batch_edits else Edits.IMMEDIATE,
        **named,
    )
    return SearchOperationRequest(
        search=asked,
        policy=absolute_policy(chosen.policy_choice()),
        fusion=chosen.fusion,
        near_duplicates=chosen.near_duplicates,
        reranker=None if chosen.reranker is None else absolute_spec(chosen.reranker),
        rerank_depth=chosen.rerank_depth,
        web=absolute_web(chosen.web()),
        tools=chosen.tools,
        save=chosen.save_traces,
        trace=trace,
    )


def parse_filter_json(text: str) -> dict[str, Any]:
    """A filter from the command line, checked before anything is opened."""
    from thresher.api.errors import UsageError
    from thresher.corpus.filters import parse_filter

    example = 'write it like --filter \'{"type": "eq", "key": "year", "value": 2024}\''
    try:
        value = jsonlib.loads(text)
    except ValueError as error:
        raise UsageError(f"--filter is not JSON ({error}); {example}") from error
    if not isinstance(value, dict):
        raise UsageError(f"--filter must be a JSON object; {example}")
    parse_filter(value)
    return value


@contextmanager
def _live() -> Iterator[Callable[[str, Mapping[str, Any]], None] | None]:
    """A status line that follows the search, only on a terminal."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.text import Text

    with console.status("searching") as status:

        def show(kind: str, told: Mapping[str, Any]) -> None:
            data = told["data"]
            words = [str(data[key]) for key in ("agent", "turn", "tool", "query", "message") if data.get(key)]
            status.update(Text(one_line(f"{told['type']} {' '.join(words)}", 100)))  # not markup: it quotes documents

        yield show
