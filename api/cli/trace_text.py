"""How a trajectory looks in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thresher.api.cli.console import clean, one_line
from thresher.api.tracing.accounting import GROUPS
from thresher.api.tracing.cost import Prices
from thresher.api.tracing.view import read_trace
from thresher.api.tracing.words import arguments_text, cost_text, ending_text, ids_text, outcome_text, receipt_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from thresher.api.tracing.view import AnswerView, CallView, Passage, TraceView, TurnView
    from thresher.engine.requests import Answer
    from thresher.engine.trajectory import Trajectory

BAR = 40
IDS_BRIEF = 6
INDENT = "    "


def print_trajectory(
    console: Console,
    trajectory: Trajectory,
    answer: Answer | None = None,
    *,
    prices: Prices | None = None,
    brief: bool = False,
) -> None:
    """Every turn with its queries, what they showed, the edits with their receipts, tokens and costs.

    Sub-agents and rollouts follow, indented. `brief` counts the passages that were not returned in the end instead of
    listing them.
    """
    _Printer(console, prices or Prices(), brief).trace(read_trace(trajectory, answer))


class _Printer:
    def __init__(self, console: Console, prices: Prices, brief: bool, indent: str = "") -> None:
        self.console = console
        self.prices = prices
        self.indent = indent
        self.limit = IDS_BRIEF if brief else None
        self.brief = brief
        plain = console.options.ascii_only
        self.marks = {"returned": "*", "kept": "+", "pruned": "x"} if plain else _MARKS
        self.blocks = ("i", "p", "#", "n", "e", ".", "|") if plain else ("▓", "▒", "█", "▚", "░", "·", "│")

    def line(self, text: str, style: str = "", *, within: str = "") -> None:
        """A line at the depth of the agent; a text of several lines stays there."""
        start = self.indent + within
        self.console.print(f"{start}{text}".replace("\n", f"\n{start}"), style=style)

    def trace(self, trace: TraceView) -> None:
        """A search, and the agents in it."""
        if trace.name:
            self.line(clean(trace.name), "bold cyan")
        else:
            self.line(
                f"{trace.id}  {trace.started_at}  policy {clean(trace.policy)}  profile {clean(trace.profile)}", "dim"
            )
        self.line(f"Q: {clean(trace.question)}", "bold")
        for turn in trace.turns:
            self.turn(turn, trace)
        for agent in trace.agents:
            self.console.print()
            _Printer(self.console, self.prices, self.brief, self.indent + INDENT).trace(agent)
        self.passages(trace)
        if trace.answer is not None:
            self.answer(trace.answer)
        self.ending(trace)

    def turn(self, turn: TurnView, trace: TraceView) -> None:
        """One turn: what filled the context after it, what it said and did, and what that cost."""
        used, total = turn.account.used, trace.budget.get("total", 0)
        self.console.print()
        self.line(f"turn {turn.index}  {used:,} of {total:,} tokens", "cyan")
        self.console.print(self.bar(turn, trace.budget))
        shares = [f"{group} {size:,}" for group, size in turn.account.by_group.items() if size]
        limits = [f"{name} {trace.budget[name]:,}" for name in ("soft", "hard") if name in trace.budget]
        about = "" if turn.account.exact or not shares else "about "
        self.line(f"{about}{', '.join(shares)}; limits: {', '.join(limits)}", "dim", within="  ")
        if turn.reasoning:
            self.line(one_line(turn.reasoning, 400), "italic", within="  ")
        for fault in turn.faults:
            self.line(f"recovered: {one_line(fault, 300)}", "yellow", within="  ")
        for call in turn.calls:
            self.call(call)
        for edit in turn.engine_edits:
            self.line(f"by the engine: {clean(receipt_text(edit, self.limit))}", "magenta", within="  ")
        self.line(f"cost: {cost_text(turn.account.cost, self.prices)}", "dim", within="  ")

    def bar(self, turn: TurnView, budget: Mapping[str, int]) -> Text:
        """What filled the context, in colours and in shapes; strokes stand at the soft and the hard limit."""
        from rich.text import Text

        total = max(budget.get("total", 0), turn.account.used, 1)
        *shapes, empty, stroke = self.blocks
        cells: list[tuple[str, str]] = []
        shares = turn.account.by_group or {"passages": turn.account.used}
        reached = 0
        for number, group in enumerate(GROUPS):
            reached += shares.get(group, 0)
            cells += [(shapes[number], _COLOURS[number])] * (round(BAR * reached / total) - len(cells))
        cells += [(empty, "dim")] * (BAR - len(cells))
        for name, colour in (("soft", "yellow"), ("hard", "red")):
            at = min(BAR - 1, BAR * budget.get(name, total) // total)
            cells[at] = (stroke, colour)
        return Text.assemble(self.indent, "  ", *cells)

    def call(self, call: CallView) -> None:
        """A call, and what it brought: passages with their fate, or the receipt of an edit."""
        query = "" if call.query is None else f'"{one_line(call.query, 160)}" '
        arguments = one_line(arguments_text(call.arguments, self.limit), 400)
        self.line(f"{clean(call.name)} {query}{arguments}".rstrip(), "bold", within="  ")
        if call.receipt:
            self.line(f"receipt: {clean(receipt_text(call.receipt, self.limit))}", "magenta", within="    ")
        else:
            style = {"failed": "red", "rejected": "red", "empty": "yellow"}.get(call.outcome, "dim")
            self.line(clean(outcome_text(call, 300)), style, within="    ")
        for outcome, address in call.fetched:
            self.line(f"{outcome} {one_line(address, 200)}", "dim" if outcome == "read" else "yellow", within="    ")
        rest: dict[str, int] = {}
        for passage in call.shown:
            if self.brief and passage.fate != "returned":
                rest[passage.fate] = rest.get(passage.fate, 0) + 1
                continue
            evidence = passage.evidence
            name = one_line(evidence.title, 60) or clean(evidence.document_id)
            line = f"{self.marks[passage.fate]} {clean(evidence.id):<4} {name}: {one_line(evidence.text, 90)}"
            self.line(line, _STYLES[passage.fate], within="    ")
        if rest:
            others = ", ".join(f"{count} in the end {fate}" for fate, count in sorted(rest.items()))
            self.line(f"and {others}", "dim", within="      ")

    def passages(self, trace: TraceView) -> None:
        """What was returned and which query found it; what else was kept, and what was pruned."""
        self.console.print()
        for passage in trace.of("returned"):
            self.line(f"{self.marks['returned']} {passage.place:>2}. {_found(passage)}", _STYLES["returned"])
        for fate in ("kept", "pruned"):
            ids = [clean(passage.evidence.id) for passage in trace.of(fate)]
            if ids:
                self.line(f"{self.marks[fate]} {fate}: {ids_text(ids, self.limit)}", _STYLES[fate])

    def answer(self, answer: AnswerView) -> None:
        """The answer with its citations, or why there is none."""
        if not answer.text:
            self.line(f"no answer: {one_line(answer.withheld_reason or 'it was withheld', 300)}", "yellow")
            return
        self.line(f"answer: {clean(answer.text)}", "bold green")
        for cited in answer.citations:
            checked = "" if cited.quote is not None else "  (not found in the passage)"
            self.line(f"[{clean(cited.evidence_id)}] » {one_line(cited.text, 300)}{checked}", "green", within="  ")

    def ending(self, trace: TraceView) -> None:
        """How it ended, in the policy's words where there are any, and what it cost."""
        self.line(f"ended: {ending_text(trace)}", "bold")
        if trace.justification:
            self.line(one_line(trace.justification, 600), within="  ")
        if trace.error:
            self.line(f"error: {one_line(trace.error, 600)}", "red", within="  ")
        agents = ", those of agents that ran at once added up" if trace.agents else ""
        self.line(f"cost: {cost_text(trace.total_cost, self.prices)}{agents}", "dim")


def _found(passage: Passage) -> str:
    evidence = passage.evidence
    place = f"{clean(evidence.document_id)} [{evidence.start}:{evidence.end}]"
    agent = f" of {clean(evidence.agent)}" if evidence.agent else ""
    return f"{clean(evidence.id):<4} {place}  (found by turn {evidence.turn}{agent}, {one_line(evidence.query, 70)})"


_MARKS: Mapping[Any, str] = {"returned": "★", "kept": "•", "pruned": "✗"}
_STYLES = {"returned": "green", "kept": "default", "pruned": "dim"}
_COLOURS = ("bright_black", "yellow", "blue", "green", "magenta")
