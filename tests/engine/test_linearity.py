"""The engine's own work in a turn does not grow with the number of turns. Counted in lines run, so no clock decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from thresher.engine import SearchRequest, StopReason
from thresher.engine.limits import Limits
from thresher.engine.loop import SearchLoop
from thresher.engine.policy import Decision, Outcome, ToolUse, View
from thresher.engine.profiles import Profile
from thresher.engine.requests import Edits, Strategy
from thresher.engine.session import Session
from thresher.engine.tokenizers import default_counter
from thresher.engine.tools.base import Arguments, Editor, Found, Tool, ToolResult
from thresher.engine.tools.edits import FOLD, PRUNE_CHUNKS, RESTORE_CHUNKS
from thresher.engine.tools.finish import FINISH

TURNS = 160
EARLY, LATE = slice(30, 70), slice(120, 160)


class Number(Arguments):
    number: int


async def _find(arguments: Number, editor: Editor) -> ToolResult:
    """Ten new chunks for each number."""
    text = f"Words about number {arguments.number}. " * 12
    found = [
        Found(f"{arguments.number}.{i}", "1", f"doc{i}", "file:///doc", "Title", text, 0, len(text), {}, i, i)
        for i in range(10)
    ]
    return ToolResult(Outcome.OK, found=tuple(found), limit=10, query=str(arguments.number))


SEARCH = Tool("search_corpus", "Find.", Number, _find, searches=True)


class Works:
    """Keeps its context small by whatever the strategy offers, and notes how many lines had run at each turn."""

    name = "works"

    def __init__(self, lines: Callable[[], int]) -> None:
        self._lines = lines
        self.lines: list[int] = []

    async def decide(self, view: View) -> Decision:
        self.lines.append(self._lines())
        if view.turn > TURNS:
            return Decision((ToolUse("finish", {"evidence_ids": ["c1"], "sufficient": True}),))
        calls: list[ToolUse] = []
        if view.fold_due:
            calls.append(ToolUse("fold", {"note": "c1 tells it."}))
        elif view.strategy is Strategy.PRUNE and view.turn > 3:
            old = view.turn - 3
            outgrown = [evidence.id for evidence in view.live][:-20]
            calls.append(ToolUse("prune_chunks", {"ids": [*outgrown, f"t{old}.1", f"t{old}.2", f"r{old}"]}))
        return Decision((*calls, ToolUse("search_corpus", {"number": view.turn})), "Go on.")


@pytest.mark.parametrize(
    ("strategy", "edits"),
    [
        (Strategy.PRUNE, Edits.IMMEDIATE),
        (Strategy.PRUNE, Edits.BATCHED),
        (Strategy.FOLD, Edits.IMMEDIATE),
        (Strategy.DISCARD_ALL, Edits.IMMEDIATE),
    ],
)
async def test_a_late_turn_costs_what_an_early_one_does(strategy: Strategy, edits: Edits) -> None:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return (
            trace if frame.f_globals.get("__name__", "").startswith(("thresher.context", "thresher.engine")) else None
        )

    tools = (SEARCH, PRUNE_CHUNKS, RESTORE_CHUNKS, FOLD, FINISH)
    request = SearchRequest("Who?", max_turns=TURNS + 5, strategy=strategy, edits=edits)
    session = Session(request, profile=Profile(no_news_turns=TURNS), tools=tools, counter=default_counter())
    policy = Works(lambda: count)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        reason = await SearchLoop(session, policy, tools, limits=Limits(), emit=lambda *_: None).run()
    finally:
        sys.settrace(before)
    assert reason is StopReason.FINISHED
    assert session.tally.recoveries == 0
    assert len(session.store) == 10 * TURNS
    lines = [after - before for before, after in zip(policy.lines, policy.lines[1:], strict=False)]
    early, late = (sum(lines[part]) / len(lines[part]) for part in (EARLY, LATE))
    assert early > 100, "the trace sees the engine"
    assert late < 1.15 * early
