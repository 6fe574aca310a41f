"""The search loop: observe, decide, act, until something ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from thresher.context import Call
from thresher.engine.errors import EngineError
from thresher.engine.events import EventType
from thresher.engine.policy import Outcome, Policy
from thresher.engine.requests import StopReason
from thresher.engine.session import Session, Turn
from thresher.engine.tools.base import Tool, ToolResult

logger = logging.getLogger(__name__)

T = TypeVar("T")
Emit = Callable[[EventType, dict[str, Any]], None]


class Stopped(Exception):
    """The search ends here, for a reason that is not the policy's own `finish`."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SearchLoop:
    """Runs one search. All state is in the session; what remains here is the order of things."""

    def __init__(
        self,
        session: Session,
        policy: Policy,
        tools: Sequence[Tool],
        *,
        max_turns: int,
        max_results: int,
        deadline: float | None,
        cancel: asyncio.Event | None,
        emit: Emit,
    ) -> None:
        self.session = session
        self.policy = policy
        self.tools = {tool.name: tool for tool in tools}
        self.specs = tuple(tool.spec for tool in tools)
        self.max_turns = max_turns
        self.max_results = max_results
        self.deadline = deadline
        self.cancel = cancel
        self.emit = emit
        self.error: str | None = None

    async def run(self) -> StopReason:
        """Search until a stop reason holds; whatever happens, the session keeps all that was found."""
        try:
            while self.session.finish is None:
                self._check_limits()
                await self._turn()
        except Stopped as stop:
            return stop.reason
        except EngineError as error:
            self.error = str(error)
            return StopReason.ERROR
        except Exception as error:  # a policy is foreign code: its failure ends the search, not the process
            logger.exception("policy %s failed", self.policy.name)
            self.error = f"{type(error).__name__}: {error}"
            return StopReason.ERROR
        return StopReason.FINISHED

    def _check_limits(self) -> None:
        session = self.session
        if self.cancel is not None and self.cancel.is_set():
            raise Stopped(StopReason.CANCELLED)
        if len(session.turns) >= self.max_turns:
            raise Stopped(StopReason.BUDGET_TURNS)
        if session.turns_without_news >= session.profile.no_news_turns:
            raise Stopped(StopReason.NO_NEW_EVIDENCE)
        if session.out_of_room:
            raise Stopped(StopReason.BUDGET_TOKENS)

    async def _turn(self) -> None:
        session = self.session
        view = session.view(
            tools=self.specs, turns_left=self.max_turns - len(session.turns), max_results=self.max_results
        )
        turn = session.begin_turn(view)
        self.emit(EventType.TURN_STARTED, {"turn": turn.index, "prompt_tokens": view.prompt.tokens})
        try:
            started = time.perf_counter()
            decision = await self._within_limits(self.policy.decide(view))
            turn.model_seconds = time.perf_counter() - started
            if not session.add_decision(turn, decision, view):
                raise Stopped(StopReason.BUDGET_TOKENS)
            await self._act(turn)
        except BaseException:
            session.abandon_turn(turn)
            raise
        session.end_turn(turn)

    async def _act(self, turn: Turn) -> None:
        """Edits first, in order, so that they make room; then all other calls at once; then show results in order."""
        results: dict[str, ToolResult] = {}
        for call in turn.calls:
            self.emit(EventType.TOOL_CALLED, {"turn": turn.index, "id": call.id, "tool": call.name,
                                              "arguments": call.arguments})  # fmt: skip
            tool = self.tools.get(call.name)
            if tool is None:
                names = ", ".join(self.tools)
                results[call.id] = ToolResult(Outcome.REJECTED, f"There is no tool {call.name!r}. Tools: {names}.")
            elif tool.edits:
                results[call.id] = await tool.run(call.arguments, self.session)
        waiting: dict[str, Coroutine[Any, Any, ToolResult]] = {}
        for call in turn.calls:
            if call.id in results:
                continue
            if self.session.over_hard and not self.tools[call.name].past_hard:
                results[call.id] = ToolResult(
                    Outcome.REJECTED, "Refused: over the hard limit. Only prune_chunks and finish are accepted."
                )
            elif self.tools[call.name].name != "finish":
                waiting[call.id] = self.tools[call.name].run(call.arguments, self.session)
        if waiting:
            done = await self._within_limits(asyncio.gather(*waiting.values()))
            results.update(zip(waiting, done, strict=True))
        for number, call in enumerate(turn.calls, 1):
            if call.id not in results:  # finish: it sees what its own turn brought
                results[call.id] = await self.tools[call.name].run(call.arguments, self.session)
            self._show(turn, call, results[call.id], calls_after=len(turn.calls) - number)

    def _show(self, turn: Turn, call: Call, result: ToolResult, *, calls_after: int) -> None:
        observation = self.session.observe(turn, call, result, calls_after=calls_after)
        if call.name in ("search_corpus", "grep_corpus"):
            self.session.tally.searches += 1
        if result.finish is not None:
            self.session.finish = result.finish
        if observation.receipt is not None:
            self.emit(EventType.CONTEXT_EDITED, {"turn": turn.index, "id": call.id,
                                                 "receipt": observation.receipt.as_dict()})  # fmt: skip
        self.emit(
            EventType.TOOL_RESULT,
            {
                "turn": turn.index,
                "id": call.id,
                "tool": call.name,
                "outcome": str(observation.outcome),
                "message": observation.message,
                "shown": [
                    {"id": e.id, "document_id": e.document_id, "title": e.title}
                    for e in map(self.session.store.get, observation.shown)
                ],
            },
        )

    async def _within_limits(self, work: Awaitable[T]) -> T:
        """Await, but not past the deadline or a cancellation."""
        task = asyncio.ensure_future(work)
        waits: set[asyncio.Future[Any]] = {task}
        watcher = asyncio.ensure_future(self.cancel.wait()) if self.cancel is not None else None
        if watcher is not None:
            waits.add(watcher)
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        try:
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            cancelled = watcher is not None and watcher.done()
            raise Stopped(StopReason.CANCELLED if cancelled else StopReason.DEADLINE)
        finally:
            for pending in (task, watcher):
                if pending is not None and not pending.done():
                    pending.cancel()
