"""The search loop: observe, decide, act, until something ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from thresher.context import Call, Evidence, Receipt
from thresher.corpus.errors import CorpusError
from thresher.engine.errors import EngineError
from thresher.engine.events import EventType
from thresher.engine.limits import Limits, Stopped
from thresher.engine.policy import Decision, Outcome, Policy, View
from thresher.engine.requests import StopReason
from thresher.engine.session import Session
from thresher.engine.tools.base import Tool, ToolResult, failed
from thresher.engine.turns import Turn

logger = logging.getLogger(__name__)

SNIPPET_CHARACTERS = 160
"""How much of a passage an event shows."""

Emit = Callable[[EventType, dict[str, Any]], None]

WAIT_TOLD_S = 0.1
"""A policy that was asked only just before the deadline has not kept anyone waiting."""


class SearchLoop:
    """Runs one search. All state is in the session; what remains here is the order of things."""

    def __init__(self, session: Session, policy: Policy, tools: Sequence[Tool], *, limits: Limits, emit: Emit) -> None:
        self.session = session
        self.policy = policy
        self.tools = {tool.name: tool for tool in session.offered(tools)}
        self.limits = limits
        self.emit = emit
        self.error: str | None = None
        self.error_code: str | None = None

    async def run(self) -> StopReason:
        """Search until a stop reason holds; whatever happens, the session keeps all that was found."""
        try:
            while self.session.finish is None:
                self._check_limits()
                await self._turn()
        except Stopped as stop:
            return stop.reason
        except EngineError as error:
            self.error, self.error_code = str(error), error.code
            return StopReason.ERROR
        except Exception as error:  # what was found so far is worth more to the caller than a traceback
            logger.exception("search %s failed", self.session.request.query)
            self.error = f"{type(error).__name__}: {error}"
            self.error_code = error.code if isinstance(error, CorpusError) else type(error).__name__
            return StopReason.ERROR
        return StopReason.FINISHED

    def _check_limits(self) -> None:
        session = self.session
        if self.limits.cancel is not None and self.limits.cancel.is_set():
            raise Stopped(StopReason.CANCELLED)
        if len(session.turns) >= session.request.turns:
            raise Stopped(StopReason.BUDGET_TURNS)
        if session.turns_without_news >= session.profile.no_news_turns:
            raise Stopped(StopReason.NO_NEW_EVIDENCE)
        if session.out_of_room:
            raise Stopped(StopReason.BUDGET_TOKENS)

    async def _turn(self) -> None:
        session = self.session
        view = session.view(turns_left=session.request.turns - len(session.turns))
        turn = session.begin_turn(view)
        budget = {"total": session.budget.total, "soft": session.budget.soft, "hard": session.budget.hard}
        self.emit(EventType.TURN_STARTED, {"turn": turn.index, "prompt_tokens": view.prompt.tokens, "budget": budget})
        try:
            decision = await self._decide(view, turn)
            if not session.add_decision(turn, decision):
                raise Stopped(StopReason.BUDGET_TOKENS)
            await self._act(turn)
        except BaseException:
            session.record(turn)
            raise
        session.end_turn(turn)
        for receipt in (*turn.flushed, *turn.managed):
            self._emit_edit(turn, receipt)

    async def _decide(self, view: View, turn: Turn) -> Decision:
        started = time.perf_counter()
        try:
            return await self.limits.within(self.policy.decide(view))
        except Stopped as stop:
            waited = time.perf_counter() - started
            if stop.reason is StopReason.DEADLINE and waited >= WAIT_TOLD_S:
                self.session.warnings.append(
                    f"turn {turn.index}: the policy had not answered for {waited:.1f} s when the deadline came"
                )
            raise
        finally:
            turn.model_seconds = time.perf_counter() - started

    async def _act(self, turn: Turn) -> None:
        """Calls that make room first; then the others, all at once; then show results in the order of the calls.

        The observation of a fold comes before all others: they need the room that it makes.
        """
        results: dict[str, ToolResult] = {}
        shown: set[str] = set()

        def show(call: Call) -> None:
            shown.add(call.id)
            self._show(turn, call, results[call.id], calls_after=len(turn.calls) - len(shown))

        try:
            for call in turn.calls:
                self.emit(
                    EventType.TOOL_CALLED,
                    {"turn": turn.index, "id": call.id, "tool": call.name, "arguments": call.arguments},
                )
                tool = self.tools.get(call.name)
                if tool is None:
                    message = f"There is no tool {call.name!r}. Tools: {', '.join(self.tools)}."
                    results[call.id] = ToolResult(Outcome.REJECTED, message)
                elif tool.first:
                    results[call.id] = await self.limits.within(self._run(call))
                    if results[call.id].fold is not None:
                        show(call)
            waiting: list[Call] = []
            for call in turn.calls:
                if call.id in results or self.tools[call.name].last:
                    continue
                refusal = self.session.refusal(self.tools[call.name])
                if refusal is None:
                    waiting.append(call)
                else:
                    results[call.id] = refusal
            if waiting:
                done = await self.limits.within(asyncio.gather(*map(self._run, waiting)))
                results.update(zip((call.id for call in waiting), done, strict=True))
            for call in turn.calls:
                if call.id not in results:  # it sees what its own turn brought
                    results[call.id] = await self.limits.within(self._run(call))
                if call.id not in shown:
                    show(call)
        except Stopped:
            for call in turn.calls:  # edits were made: their receipts belong into the record
                if call.id in results and call.id not in shown:
                    show(call)
            raise

    async def _run(self, call: Call) -> ToolResult:
        """One call. A tool that breaks costs its call, not the search, whoever wrote it."""
        try:
            result: object = await self.tools[call.name].call(call.arguments, self.session)
        except Exception as error:
            logger.exception("the tool %s broke", call.name)
            return failed(f"{call.name} could not be run: {type(error).__name__}: {error}")
        if isinstance(result, ToolResult):  # what it declares is not what an untyped tool must give
            return result
        return failed(f"{call.name} could not be run: it gave {type(result).__name__} in place of a ToolResult")

    def _show(self, turn: Turn, call: Call, result: ToolResult, *, calls_after: int) -> None:
        tool = self.tools.get(call.name)
        searches = tool is not None and tool.searches
        observation = self.session.observe(turn, call, result, calls_after=calls_after, searches=searches)
        if result.finish is not None:
            self.session.finish = result.finish
        if observation.receipt is not None:
            self._emit_edit(turn, observation.receipt, call)
        store = self.session.store
        self.emit(
            EventType.TOOL_RESULT,
            {
                "turn": turn.index,
                "id": call.id,
                "tool": call.name,
                "outcome": str(observation.outcome),
                "message": observation.message,
                "chunks": [self._chunk(store.get(handle)) for handle in observation.shown],
                "context_tokens": self.session.ledger.tokens,
            },
        )

    def _chunk(self, evidence: Evidence) -> dict[str, Any]:
        """A passage as it is told of: enough to show it, and not the whole of it."""
        block = self.session.ledger.block(evidence.id)
        return {
            "id": evidence.id,
            "document_id": evidence.document_id,
            "title": evidence.title,
            "tokens": block.tokens if block is not None else 0,
            "snippet": evidence.text[:SNIPPET_CHARACTERS],
        }

    def _emit_edit(self, turn: Turn, receipt: Receipt, call: Call | None = None) -> None:
        self.emit(
            EventType.CONTEXT_EDITED,
            {
                "turn": turn.index,
                "id": call.id if call else None,
                "kind": str(receipt.kind),
                "removed": list(receipt.removed),
                "restored": list(receipt.restored),
                "freed_tokens": receipt.tokens_freed,
                "reprefill_tokens": receipt.tokens_reprefill,
                "context_tokens": receipt.tokens_after,
                "receipt": receipt.as_dict(),
            },
        )
