"""`search`: ask a collection a question."""

from __future__ import annotations

import asyncio
import json as jsonlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import CollectionOption, EffortOption, JsonOption, PolicyOption, open_collection, settings
from thresher.api.cli.console import ExitCode, emit, err, note, one_line, out, warn

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.engine.events import Event, EventSink
    from thresher.engine.requests import SearchRequest, SearchResult
    from thresher.engine.search import SearchEngine


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(search)


def search(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    collection: CollectionOption = None,
    effort: EffortOption = None,
    max_results: Annotated[int | None, typer.Option("--max-results", help="Passages at most, 1 to 100.")] = None,
    max_turns: Annotated[int | None, typer.Option("--max-turns", help="Turns at most.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Size of the context in tokens.")] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds after which to return what was found.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", metavar="JSON", help='As {"type": "eq", "key": "year", "value": 2024}.')
    ] = None,
    policy: PolicyOption = None,
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
    from thresher.engine.search import SearchEngine

    chosen = settings(
        ctx,
        collection=collection,
        effort=effort,
        max_results=max_results,
        max_turns=max_turns,
        max_tokens=max_tokens,
        deadline_s=deadline,
        policy=policy,
    )
    request = _request(question, chosen, filter, batch_edits)
    with open_collection(chosen.collection) as opened:
        result = run_search(SearchEngine(opened, chosen.policy), request, save=chosen.save_traces)
    show_result(result, with_trace=trace, as_json=json, saved=chosen.save_traces)
    raise typer.Exit(exit_code(result))


def run_search(engine: SearchEngine, request: SearchRequest, *, save: bool) -> SearchResult:
    """Run one search, show what happens on a terminal, and keep its trajectory if `save`.

    The first Ctrl-C cancels the search, which then returns what it has; the second one interrupts the process.
    """
    from thresher.api.traces import with_trace_saved

    async def run(on_event: EventSink | None) -> SearchResult:
        cancel = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            cancel.set()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            return await engine.search(request, on_event=on_event, cancel=cancel)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    with _live() as on_event:
        result = asyncio.run(run(on_event))
    return with_trace_saved(result) if save else result


def show_result(result: SearchResult, *, with_trace: bool, as_json: bool, saved: bool, brief: bool = False) -> None:
    """Print a result, warnings on stderr; `brief` shortens the trace."""
    from thresher.api.cli.render import print_results, print_trajectory
    from thresher.api.schema import search_response
    from thresher.api.traces import trace_path

    response = search_response(result, include_trace=with_trace)
    for warning in response.warnings:
        warn(one_line(warning, 400))
    if as_json:
        emit(response.model_dump(mode="json", exclude=None if with_trace else {"trajectory"}))
        return
    console = out()
    if with_trace and result.trajectory is not None:
        print_trajectory(console, result.trajectory, brief=brief)
        console.print()
    print_results(console, response)
    if saved and trace_path(result.id).is_file():
        note(f"`thresher trace show {result.id}` shows how it was found")


def exit_code(result: SearchResult) -> ExitCode:
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


def _request(question: str, chosen: Settings, filter_json: str | None, batch_edits: bool) -> SearchRequest:
    from thresher.engine.requests import Edits, SearchRequest

    return SearchRequest(
        question,
        effort=chosen.effort,
        max_results=chosen.max_results,
        max_turns=chosen.max_turns,
        max_tokens=chosen.max_tokens,
        deadline_s=chosen.deadline_s,
        filters=None if filter_json is None else parse_filter_json(filter_json),
        edits=Edits.BATCHED if batch_edits else Edits.IMMEDIATE,
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
def _live() -> Iterator[EventSink | None]:
    """A status line that follows the search, only on a terminal."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.text import Text

    with console.status("searching") as status:

        def show(event: Event) -> None:
            data = event.data
            words = [str(data[key]) for key in ("turn", "tool", "query", "message") if data.get(key)]
            status.update(Text(one_line(f"{event.type} {' '.join(words)}", 100)))  # not markup: it quotes documents

        yield show
