"""The state of one search: ledger, evidence, budget, and the record of its turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.context import (
    Block,
    BlockDraft,
    BlockKind,
    Budget,
    Call,
    EvidenceStore,
    Ledger,
    Prompt,
    PruneBatch,
    Receipt,
    Role,
    Tier,
    TokenCounter,
)
from thresher.engine.observe import Display
from thresher.engine.policy import Decision, Observation, Outcome, ToolSpec, View
from thresher.engine.profiles import Profile
from thresher.engine.tools.base import Finish, ToolResult
from thresher.engine.trajectory import (
    CallRecord,
    ObservationRecord,
    TurnRecord,
    canonical_arguments,
    dump_event,
)

HEAD_TOKENS = 48
"""Room kept for the head of each observation."""
TAIL_TOKENS = 96
"""Room kept for the usage line and a notice at the end of a turn."""


@dataclass(slots=True)
class Tally:
    """Running totals of a search."""

    calls: int = 0
    searches: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    peak_context_tokens: int = 0
    reprefill_tokens: int = 0
    recoveries: int = 0
    model_seconds: float = 0.0


@dataclass(slots=True)
class Turn:
    """A turn in the making."""

    index: int
    prompt: Prompt
    started: float
    first_event: int
    model_seconds: float = 0.0
    decision: Decision = field(default_factory=lambda: Decision(()))
    calls: tuple[Call, ...] = ()
    observations: list[Observation] = field(default_factory=list)


class Session:
    """Owns the ledger of one search. Everything that enters the context goes through here, sized before it enters."""

    def __init__(self, question: str, *, profile: Profile, budget: Budget, counter: TokenCounter) -> None:
        self.question = question
        self.profile = profile
        self.budget = budget
        self.ledger = Ledger(counter)
        self.store = EvidenceStore()
        self.batch = PruneBatch() if profile.batched_edits else None
        self.turns: list[TurnRecord] = []
        self.tally = Tally()
        self.warnings: list[str] = []
        self.finish: Finish | None = None
        self.turns_without_news = 0
        self._observations: tuple[Observation, ...] = ()
        self._display = Display(self.ledger, self.store, budget)
        self.ledger.append(BlockDraft(BlockKind.SYSTEM, profile.system_prompt, opens=Role.SYSTEM))
        self.ledger.append(BlockDraft(BlockKind.TASK, question, opens=Role.USER))
        self.opening = tuple(dump_event(event) for event in self.ledger.events)

    @property
    def room(self) -> int:
        """Tokens left before the total."""
        return self.budget.total - self.ledger.tokens

    @property
    def out_of_room(self) -> bool:
        """Whether another turn can no longer be guaranteed to fit."""
        return self.room < 2 * (TAIL_TOKENS + self.profile.max_calls * HEAD_TOKENS)

    @property
    def over_hard(self) -> bool:
        """Whether only edits and finish are accepted."""
        return self.budget.tier(self.ledger.tokens) is Tier.HARD

    def view(self, *, tools: tuple[ToolSpec, ...], turns_left: int, max_results: int) -> View:
        """What the policy is shown for its next turn."""
        tokens = {b.handle: b.tokens for b in self.ledger.live if b.kind is BlockKind.CHUNK and b.handle}
        return View(
            question=self.question,
            turn=len(self.turns) + 1,
            turns_left=turns_left,
            prompt=self.ledger.prompt(),
            tools=tools,
            budget=self.budget,
            max_reply_tokens=self.room - TAIL_TOKENS - self.profile.max_calls * HEAD_TOKENS,
            max_results=max_results,
            live=tuple(self.store.get(handle) for handle in tokens),
            live_tokens=tokens,
            store=self.store,
            observations=self._observations,
        )

    def begin_turn(self, view: View) -> Turn:
        """Start recording a turn."""
        self.tally.prompt_tokens += view.prompt.tokens
        self.tally.peak_context_tokens = max(self.tally.peak_context_tokens, view.prompt.tokens)
        return Turn(view.turn, view.prompt, time.perf_counter(), len(self.ledger.events))

    def add_decision(self, turn: Turn, decision: Decision, view: View) -> bool:
        """Put the policy's words and calls into the context; False when they do not fit."""
        calls = tuple(
            Call(f"t{turn.index}.{number}", _plain_name(use.name), _argument_text(use.arguments))
            for number, use in enumerate(decision.calls[: self.profile.max_calls], 1)
        )
        drafts = [BlockDraft(BlockKind.REASONING, decision.reasoning, turn=turn.index, opens=Role.ASSISTANT)]
        drafts += [BlockDraft(BlockKind.CALL, "", turn=turn.index, call=call) for call in calls]
        cost = sum(self.ledger.cost(draft) for draft in drafts)
        turn.decision = decision
        if cost > view.max_reply_tokens:
            self.warnings.append(
                f"turn {turn.index}: the policy wrote {cost} tokens, {view.max_reply_tokens} were left"
            )
            return False
        turn.calls = calls
        for draft in drafts:
            self.ledger.append(draft)
        self.tally.completion_tokens += cost
        self.tally.calls += len(calls)
        self.tally.recoveries += sum(call.name != use.name for call, use in zip(calls, decision.calls, strict=False))
        if dropped := len(decision.calls) - len(calls):
            self.tally.recoveries += dropped
            self.warnings.append(f"turn {turn.index}: {dropped} calls beyond {self.profile.max_calls} were not run")
        return True

    def prune(self, handles: Sequence[str]) -> Receipt:
        """Prune now, or stage when edits are batched and nothing presses."""
        if self.batch is None:
            return self._count(self.ledger.prune(handles))
        staged = self.batch.stage(self.ledger, handles)
        if not (self.batch.due or self.budget.tier(self.ledger.tokens) is not Tier.OK):
            return staged
        flushed = self._count(self.batch.flush(self.ledger))
        return Receipt(
            flushed.kind,
            removed=flushed.removed,
            unknown=staged.unknown,
            unchanged=staged.unchanged,
            protected=staged.protected,
            tokens_freed=flushed.tokens_freed,
            tokens_reprefill=flushed.tokens_reprefill,
            tokens_after=flushed.tokens_after,
        )

    def observe(self, turn: Turn, call: Call, result: ToolResult, *, calls_after: int) -> Observation:
        """Add one observation, cut to what fits beside the heads of the calls still to come."""
        if result.outcome is Outcome.REJECTED:
            self.tally.recoveries += 1
        self.warnings.extend(result.warnings)
        reserve = TAIL_TOKENS + calls_after * HEAD_TOKENS
        if self.batch is not None:
            self.batch.withdraw(result.restore)
            if self.batch.tokens and self.room - reserve < self.budget.tool_output:
                self._count(self.batch.flush(self.ledger))
        observation = self._display.add(turn.index, call, result, room=self.room - reserve)
        turn.observations.append(observation)
        return observation

    def end_turn(self, turn: Turn) -> TurnRecord:
        """Close a turn with its usage line and, past soft, a notice."""
        if not turn.calls:
            self._notice(turn, "No tool was called. Search with a tool, or call finish.", opens=Role.USER)
        used = self.ledger.tokens
        lines = [f"[Token usage: {used:,}/{self.budget.total:,}]"]
        tier = self.budget.tier(used)
        if tier is Tier.HARD:
            lines.append("[Over the hard limit: only prune_chunks and finish are accepted now.]")
        elif tier is Tier.SOFT:
            lines.append("[Past the soft limit: prune chunks you do not need, or finish.]")
        self.ledger.append(BlockDraft(BlockKind.USAGE, "\n".join(lines) + "\n", turn=turn.index))
        news = any(observation.news for observation in turn.observations)
        self.turns_without_news = 0 if news else self.turns_without_news + 1
        self._observations = tuple(turn.observations)
        return self._record(turn)

    def abandon_turn(self, turn: Turn) -> TurnRecord:
        """Record a turn that a limit cut short: what it did to the ledger so far stays."""
        return self._record(turn)

    def _record(self, turn: Turn) -> TurnRecord:
        self.tally.peak_context_tokens = max(self.tally.peak_context_tokens, self.ledger.tokens)
        self.tally.model_seconds += turn.model_seconds
        record = TurnRecord(
            index=turn.index,
            prompt_tokens=turn.prompt.tokens,
            prompt_digest=turn.prompt.digest,
            reasoning=turn.decision.reasoning,
            calls=tuple(CallRecord(id=c.id, name=c.name, arguments=c.arguments) for c in turn.calls),
            observations=tuple(_observation_record(o) for o in turn.observations),
            events=tuple(dump_event(event) for event in self.ledger.events[turn.first_event :]),
            tokens_after=self.ledger.tokens,
            model_seconds=turn.model_seconds,
            seconds=time.perf_counter() - turn.started,
        )
        self.turns.append(record)
        return record

    def _notice(self, turn: Turn, text: str, *, opens: Role) -> Block:
        return self.ledger.append(BlockDraft(BlockKind.NOTICE, text + "\n", turn=turn.index, opens=opens))

    def _count(self, receipt: Receipt) -> Receipt:
        self.tally.reprefill_tokens += receipt.tokens_reprefill
        return receipt


def _plain_name(name: str) -> str:
    """Models trained on harmony write `functions.search_corpus`."""
    return name.removeprefix("functions.").strip()


def _argument_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else canonical_arguments(arguments)


def _observation_record(observation: Observation) -> ObservationRecord:
    shown = set(observation.shown)
    return ObservationRecord(
        call_id=observation.call.id,
        tool=observation.call.name,
        outcome=str(observation.outcome),
        message=observation.message,
        shown=observation.shown,
        repeats=tuple(s.evidence_id for s in observation.sightings if s.evidence_id not in shown),
        receipt=observation.receipt.as_dict() if observation.receipt else None,
    )
