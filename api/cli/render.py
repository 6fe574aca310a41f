"""How results look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.api.cli.console import clean, one_line, plural

if TYPE_CHECKING:
    from rich.console import Console

    from thresher.api.schema import SearchResponse

SNIPPET = 320


def print_results(console: Console, response: SearchResponse) -> None:
    """The answer, if one was asked for, the ranked passages, and how the search ended."""
    _print_answer(console, response)
    for rank, result in enumerate(response.results, 1):
        title = one_line(result.title, 100)
        page = "" if result.page is None else f", page {result.page}"
        place = f"{clean(result.document_id)}{page} [{result.start}:{result.end}]"
        console.print(f"{rank}. {title or place}", style="bold")
        if title:
            console.print(f"   {place}", style="dim")
        for span in result.spans:
            console.print(f"   » {one_line(span.text, SNIPPET)}", style="green")
        console.print(f"   {one_line(result.text, SNIPPET)}")
    console.print(_ending(response), style="bold" if response.sufficient is not False else "yellow")
    if response.justification:
        console.print(f"   {one_line(response.justification, 400)}")
    for part in response.missing:
        console.print(f"   missing: {one_line(part, 200)}", style="yellow")
    for notice in response.notices:
        if notice == response.answer_withheld:
            continue  # stands above the passages
        console.print(f"   {one_line(notice, 200)}", style="dim")


def _print_answer(console: Console, response: SearchResponse) -> None:
    if response.answer is not None:
        console.print(clean(response.answer), style="bold green")
        for citation in response.citations:
            place = f"{clean(citation.document_id)} [{citation.start}:{citation.end}]"
            console.print(f"   [{citation.id}] » {one_line(citation.text, SNIPPET)}  ({place})", style="green")
        console.print()
    elif response.answer_withheld is not None:
        reason = response.answer_withheld.removeprefix("no answer: ")
        console.print(f"no answer: {one_line(reason, SNIPPET)}\n", style="yellow")


def _ending(response: SearchResponse) -> str:
    usage = response.usage
    count = plural(len(response.results), "passage")
    if not response.results:
        # Two different results: what was not searched for cannot be said not to be there.
        unsearched = response.status == "failed" or not usage["searches"]
        verdict = "no passages" if unsearched else "nothing found"
    elif response.sufficient is None:
        verdict = count
    else:
        verdict = f"{count}, {'sufficient' if response.sufficient else 'not sufficient'} by the policy's own word"
    work = f"{plural(int(usage['turns']), 'turn')}, {plural(int(usage['searches']), 'search', 'searches')}"
    if usage["subagents"]:
        agents = plural(int(usage["subagents"]), "sub-agent")
        work += f", {agents} ({int(usage['useful_subagents'])} of use), {int(usage['critical_steps'])} critical steps"
    peak = f", peak {int(usage['peak_context_tokens']):,} tokens" if usage["peak_context_tokens"] else ""
    return f"{response.status} ({response.stop_reason}): {verdict}; {work}{peak}, {usage['seconds']:.2f} s"
