"""How results and trajectories look in a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.api.cli.console import clean, one_line, plural

if TYPE_CHECKING:
    from rich.console import Console

    from thresher.api.schema import SearchResponse
    from thresher.context import Evidence
    from thresher.engine.trajectory import ObservationRecord, Trajectory, TurnRecord

SNIPPET = 320
BAR = 32
IDS_BRIEF = 6


def print_results(console: Console, response: SearchResponse) -> None:
    """The ranked passages and how the search ended."""
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
        console.print(f"   {one_line(notice, 200)}", style="dim")


def _ending(response: SearchResponse) -> str:
    usage = response.usage
    count = plural(len(response.results), "passage")
    if not response.results:
        verdict = "nothing found"
    elif response.sufficient is None:
        verdict = count
    else:
        verdict = f"{count}, {'sufficient' if response.sufficient else 'not sufficient'} by the policy's own word"
    work = f"{plural(int(usage['turns']), 'turn')}, {plural(int(usage['searches']), 'search', 'searches')}"
    peak = f", peak {int(usage['peak_context_tokens']):,} tokens" if usage["peak_context_tokens"] else ""
    return f"{response.status} ({response.stop_reason}): {verdict}; {work}{peak}, {usage['seconds']:.2f} s"


def print_trajectory(console: Console, trajectory: Trajectory, *, brief: bool = False) -> None:
    """Every turn with its queries, what they showed, the edits with their receipts, and the size of the context.

    `brief` counts the passages that were not returned in the end instead of listing them.
    """
    view = _TrajectoryView(console, trajectory, brief)
    console.print(f"{trajectory.id}  {trajectory.started_at}  policy {trajectory.policy}", style="dim")
    console.print(f"Q: {clean(trajectory.question)}", style="bold")
    for turn in trajectory.turns:
        view.turn(turn)
    view.evidence()
    view.ending()


class _TrajectoryView:
    def __init__(self, console: Console, trajectory: Trajectory, brief: bool) -> None:
        self.console = console
        self.brief = brief
        self.trajectory = trajectory
        self.by_id = {evidence.id: evidence for evidence in trajectory.evidence}
        self.returned = set(trajectory.returned)
        self.pruned = set(trajectory.pruned)
        plain = console.options.ascii_only
        self.marks = {"returned": "*", "kept": "+", "pruned": "x"} if plain else _MARKS
        self.blocks = ("#", ".") if plain else ("█", "░")

    def fate(self, evidence_id: str) -> str:
        """What became of a passage by the end of the search."""
        if evidence_id in self.returned:
            return "returned"
        return "pruned" if evidence_id in self.pruned else "kept"

    def turn(self, turn: TurnRecord) -> None:
        """One turn, with a bar for the tokens in the context after it."""
        total = self.trajectory.budget["total"]
        filled = min(BAR, round(BAR * turn.tokens_after / total))
        bar = self.blocks[0] * filled + self.blocks[1] * (BAR - filled)
        self.console.print(
            f"\nturn {turn.index}  {bar} {turn.tokens_after:,} of {total:,} tokens  {turn.seconds:.2f} s", style="cyan"
        )
        if turn.reasoning.strip():
            self.console.print(f"  {one_line(turn.reasoning, 400)}", style="italic")
        answers = {observation.call_id: observation for observation in turn.observations}
        for call in turn.calls:
            arguments = _arguments(call.arguments, IDS_BRIEF if self.brief else None)
            self.console.print(f"  {call.name} {arguments}", style="bold")
            if call.id in answers:
                self.observation(answers[call.id])

    def observation(self, observation: ObservationRecord) -> None:
        """What a call brought: passages with their fate, or the receipt of an edit."""
        if observation.receipt:
            receipt = _receipt(observation.receipt, IDS_BRIEF if self.brief else None)
            self.console.print(f"    receipt: {receipt}", style="magenta")
        else:
            style = {"failed": "red", "rejected": "red", "empty": "yellow"}.get(observation.outcome, "dim")
            self.console.print(f"    {observation.outcome}: {one_line(observation.message, 300)}", style=style)
        rest: dict[str, int] = {}
        for evidence_id in observation.shown:
            evidence = self.by_id[evidence_id]
            fate = self.fate(evidence_id)
            if self.brief and fate != "returned":
                rest[fate] = rest.get(fate, 0) + 1
                continue
            line = f"    {self.marks[fate]} {evidence_id:<4} {_describe(evidence)}"
            self.console.print(line, style=_STYLES[fate])
        if rest:
            others = ", ".join(f"{count} in the end {fate}" for fate, count in sorted(rest.items()))
            self.console.print(f"      and {others}", style="dim")

    def evidence(self) -> None:
        """What was returned and which query found it; what else was kept, and what was pruned."""
        self.console.print()
        for rank, evidence_id in enumerate(self.trajectory.returned, 1):
            evidence = self.by_id[evidence_id]
            place = f"{clean(evidence.document_id)} [{evidence.start}:{evidence.end}]"
            found_by = f"turn {evidence.turn}, {one_line(evidence.query, 70)}"
            line = f"{self.marks['returned']} {rank:>2}. {evidence_id:<4} {place}  (found by {found_by})"
            self.console.print(line, style=_STYLES["returned"])
        for fate in ("kept", "pruned"):
            ids = [evidence.id for evidence in self.trajectory.evidence if self.fate(evidence.id) == fate]
            if ids:
                shown = _ids(ids, IDS_BRIEF if self.brief else None)
                self.console.print(f"{self.marks[fate]} {fate}: {shown}", style=_STYLES[fate])

    def ending(self) -> None:
        """How it ended, in the policy's words where there are any."""
        trajectory = self.trajectory
        said = {None: "", True: ", sufficient", False: ", not sufficient"}[trajectory.sufficient]
        self.console.print(f"ended: {trajectory.stop_reason}{said}", style="bold")
        if trajectory.justification:
            self.console.print(f"  {one_line(trajectory.justification, 600)}")
        if trajectory.error:
            self.console.print(f"  error: {one_line(trajectory.error, 600)}", style="red")


_MARKS = {"returned": "★", "kept": "•", "pruned": "✗"}
_STYLES = {"returned": "green", "kept": "default", "pruned": "dim"}


def _describe(evidence: Evidence) -> str:
    name = one_line(evidence.title, 60) or clean(evidence.document_id)
    return f"{name}: {one_line(evidence.text, 90)}"


def _arguments(text: str, limit: int | None) -> str:
    """A call's arguments as a person reads them: the query in quotes, ids in a row; broken ones as they are."""
    try:
        arguments: Any = json.loads(text)
    except ValueError:
        return one_line(text, 200)
    if not isinstance(arguments, dict):
        return one_line(text, 200)
    parts = []
    for name, value in arguments.items():
        if name in ("query", "pattern") and isinstance(value, str):
            parts.append(f'"{one_line(value, 160)}"')
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            parts.append(f"{name}={_ids([one_line(item, 40) for item in value], limit) or 'none'}")
        else:
            parts.append(f"{name}={one_line(json.dumps(value, ensure_ascii=False), 160)}")
    return " ".join(parts)


def _ids(ids: Sequence[str], limit: int | None) -> str:
    """Ids in a row, those beyond `limit` only counted."""
    if limit is None or len(ids) <= limit:
        return ", ".join(ids)
    return f"{', '.join(ids[:limit])} and {len(ids) - limit} more"


def _receipt(receipt: dict[str, Any], limit: int | None) -> str:
    parts = [str(receipt["kind"])]
    for name in ("removed", "restored", "note", "deferred", "unchanged", "protected", "unknown"):
        if receipt.get(name):
            value = receipt[name]
            parts.append(f"{name} {_ids(value, limit) if isinstance(value, list) else value}")
    for name, words in _TOKENS.items():
        if receipt.get(name):
            parts.append(f"{receipt[name]:,} tokens {words}")
    return "; ".join(parts)


_TOKENS = {
    "tokens_freed": "freed",
    "tokens_added": "added",
    "tokens_reprefill": "to prefill again",
    "tokens_after": "in the context after it",
}
