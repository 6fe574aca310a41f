"""The state of one search: ledger, evidence, budget, and the record of its turns."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
from thresher.engine.errors import InvalidRequest
from thresher.engine.observe import Display
from thresher.engine.policy import Decision, Observation, Outcome, ToolSpec, View
from thresher.engine.profiles import Profile
from thresher.engine.requests import Edits, SearchRequest
from thresher.engine.tokenizers import valid_unicode
from thresher.engine.tools.base import Finish, Tool, ToolResult
from thresher.engine.trajectory import CallRecord, ObservationRecord, TurnRecord, canonical_arguments, dump_event

CALL_TOKENS = 48
"""Room kept for the head of each observation that a turn may hold."""
TAIL_TOKENS = 160
"""Room kept for the usage line and notices at the end of a turn."""


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
    """A turn in the making.

    `flushed` are receipts of batched edits applied during it, `staged_before` what waited in the batch when it began,
    `dropped` how many calls were too many.
    """

    index: int
    prompt: Prompt
    started: float
    first_event: int
    model_seconds: float = 0.0
    decision: Decision = field(default_factory=lambda: Decision(()))
    calls: tuple[Call, ...] = ()
    observations: list[Observation] = field(default_factory=list)
    flushed: list[Receipt] = field(default_factory=list)
    staged_before: frozenset[str] = frozenset()
    dropped: int = 0


class Session:
    """Owns the ledger of one search. Everything that enters the context goes through here, sized before it enters."""

    def __init__(
        self, request: SearchRequest, *, profile: Profile, tools: Sequence[Tool], counter: TokenCounter
    ) -> None:
        self.request = request
        self.profile = profile
        self.budget: Budget = request.budget(profile.budget)
        self.specs = tuple(tool.spec for tool in tools)
        self.ledger = Ledger(counter)
        self.store = EvidenceStore()
        self.batch = PruneBatch() if request.edits is Edits.BATCHED else None
        self.turns: list[TurnRecord] = []
        self.tally = Tally()
        self.warnings: list[str] = []
        self.finish: Finish | None = None
        self.failures: list[str] = []
        self.answered = False
        self.turns_without_news = 0
        self._observations: tuple[Observation, ...] = ()
        self._cached: tuple[Block, ...] = ()
        self._display = Display(self.ledger, self.store, self.budget)
        self.ledger.append(BlockDraft(BlockKind.SYSTEM, profile.system_prompt, opens=Role.SYSTEM))
        self.ledger.append(BlockDraft(BlockKind.TOOLS, _specs_text(self.specs)))
        self.ledger.append(BlockDraft(BlockKind.TASK, request.query, opens=Role.USER))
        self.opening = tuple(dump_event(event) for event in self.ledger.events)
        if self.out_of_room:
            raise InvalidRequest(
                f"the question and the instructions take {self.ledger.tokens:,} of {self.budget.total:,} tokens, which "
                "leaves no room to search: shorten the question or raise max_tokens",
                param="query",
            )

    @property
    def room(self) -> int:
        """Tokens left before the total."""
        return self.budget.total - self.ledger.tokens

    @property
    def out_of_room(self) -> bool:
        """Whether another turn can no longer be guaranteed to fit."""
        return self._reply_room < self.profile.max_calls * CALL_TOKENS

    @property
    def over_hard(self) -> bool:
        """Whether only edits and finish are accepted."""
        return self.budget.tier(self.ledger.tokens) is Tier.HARD

    @property
    def could_not_search(self) -> str | None:
        """Why nothing could be looked up in the whole search; None if anything could. Not the same as nothing found."""
        return self.failures[0] if self.failures and not self.answered and not len(self.store) else None

    @property
    def live(self) -> tuple[str, ...]:
        """Evidence ids in the context, without those that wait to be pruned."""
        waiting = self.batch.handles if self.batch else ()
        return tuple(handle for handle in self._live_tokens() if handle not in waiting)

    def view(self, *, turns_left: int) -> View:
        """What the policy is shown for its next turn."""
        tokens = self._live_tokens()
        return View(
            question=self.request.query,
            effort=self.request.effort,
            turn=len(self.turns) + 1,
            turns_left=turns_left,
            prompt=self.ledger.prompt(),
            tools=self.specs,
            budget=self.budget,
            max_reply_tokens=self._reply_room,
            max_results=self.request.max_results,
            live=tuple(self.store.get(handle) for handle in tokens),
            live_tokens=tokens,
            store=self.store,
            observations=self._observations,
        )

    def begin_turn(self, view: View) -> Turn:
        """Start recording a turn."""
        self.tally.prompt_tokens += view.prompt.tokens
        self.tally.reprefill_tokens += self._reprefill()
        self.tally.peak_context_tokens = max(self.tally.peak_context_tokens, view.prompt.tokens)
        waiting = frozenset(self.batch.handles) if self.batch else frozenset()
        return Turn(view.turn, view.prompt, time.perf_counter(), len(self.ledger.events), staged_before=waiting)

    def add_decision(self, turn: Turn, decision: Decision) -> bool:
        """Put the policy's words and calls into the context; False when they do not fit."""
        most = self.profile.max_calls
        calls = tuple(
            Call(f"t{turn.index}.{number}", _plain_name(use.name), _argument_text(use.arguments))
            for number, use in enumerate(decision.calls[:most], 1)
        )
        reasoning = valid_unicode(decision.reasoning)
        drafts = [BlockDraft(BlockKind.REASONING, reasoning, turn=turn.index, opens=Role.ASSISTANT)]
        drafts += [BlockDraft(BlockKind.CALL, "", turn=turn.index, call=call) for call in calls]
        turn.decision = Decision(decision.calls, reasoning)
        tokens = sum(self.ledger.tokens_of(draft) for draft in drafts)
        if tokens > self._reply_room:
            self.warnings.append(f"turn {turn.index}: the policy wrote {tokens} tokens, {self._reply_room} were left")
            return False
        turn.calls = calls
        for draft in drafts:
            self.ledger.append(draft)
        self._cached = self.ledger.live
        self.tally.completion_tokens += tokens
        self.tally.calls += len(calls)
        self.tally.recoveries += sum(call.name != use.name for call, use in zip(calls, decision.calls, strict=False))
        turn.dropped = len(decision.calls) - len(calls)
        if turn.dropped:
            self.tally.recoveries += turn.dropped
            self.warnings.append(f"turn {turn.index}: {turn.dropped} calls beyond {most} were not run")
        return True

    def prune(self, handles: Sequence[str]) -> Receipt:
        """Prune now, or stage when edits are batched and nothing presses."""
        if self.batch is None:
            return self.ledger.prune(handles)
        staged = self.batch.stage(self.ledger, handles)
        if not (self.batch.due or self.budget.tier(self.ledger.tokens) is not Tier.OK):
            return staged
        flushed = self.batch.flush(self.ledger)
        return replace(flushed, unknown=staged.unknown, unchanged=staged.unchanged, protected=staged.protected)

    def observe(self, turn: Turn, call: Call, result: ToolResult, *, calls_after: int, searches: bool) -> Observation:
        """Add one observation, cut to what fits beside the heads of the calls still to come."""
        rejected = result.outcome is Outcome.REJECTED
        self.tally.recoveries += rejected
        self.tally.searches += searches and not rejected
        self.warnings.extend(result.warnings)
        if result.outcome is Outcome.FAILED:
            self.failures.extend(result.warnings or (result.message,))
        elif searches and not rejected:
            self.answered = True
        reserve = TAIL_TOKENS + calls_after * CALL_TOKENS
        if self.batch is not None:
            self.batch.withdraw(result.restore)
            if self.room - reserve < self.budget.tool_output:
                self._flush(turn)
        observation = self._display.add(turn.index, call, result, room=self.room - reserve)
        if self.batch is not None:
            # Found again in a later turn than it was dropped in: it is wanted after all.
            self.batch.withdraw([i for i in observation.repeats if i in turn.staged_before])
        turn.observations.append(observation)
        return observation

    def end_turn(self, turn: Turn) -> TurnRecord:
        """Close a turn with its usage line and, past soft, a notice."""
        if self.budget.tier(self.ledger.tokens) is not Tier.OK:
            self._flush(turn)
        if not turn.calls:
            notice = "No tool was called. Search with a tool, or call finish.\n"
            self.ledger.append(BlockDraft(BlockKind.NOTICE, notice, turn=turn.index, opens=Role.USER))
        used = self.ledger.tokens
        lines = [f"[Token usage: {used:,}/{self.budget.total:,}]"]
        if turn.dropped:
            lines.append(f"[{turn.dropped} calls beyond {self.profile.max_calls} were not run.]")
        if turn.flushed:
            lines.append(f"[Pruned as a batch: {sum(len(receipt.removed) for receipt in turn.flushed)} chunks.]")
        tier = self.budget.tier(used)
        if tier is Tier.HARD:
            lines.append("[Over the hard limit: only prune_chunks and finish are accepted now.]")
        elif tier is Tier.SOFT:
            lines.append("[Past the soft limit: prune chunks you do not need, or finish.]")
        self.ledger.append(BlockDraft(BlockKind.USAGE, "\n".join(lines) + "\n", turn=turn.index))
        news = any(observation.news for observation in turn.observations)
        self.turns_without_news = 0 if news else self.turns_without_news + 1
        self._observations = tuple(turn.observations)
        return self.record(turn)

    def record(self, turn: Turn) -> TurnRecord:
        """Keep a turn, also one that a limit cut short: what it did to the ledger so far stays."""
        self.tally.peak_context_tokens = max(self.tally.peak_context_tokens, self.ledger.tokens)
        self.tally.model_seconds += turn.model_seconds
        record = TurnRecord(
            index=turn.index,
            prompt_tokens=turn.prompt.tokens,
            prompt_digest=turn.prompt.digest,
            reasoning=turn.decision.reasoning,
            calls=tuple(CallRecord(**asdict(call)) for call in turn.calls),
            observations=tuple(_observation_record(o) for o in turn.observations),
            flushed=tuple(receipt.as_dict() for receipt in turn.flushed),
            events=tuple(dump_event(event) for event in self.ledger.events[turn.first_event :]),
            tokens_after=self.ledger.tokens,
            model_seconds=turn.model_seconds,
            seconds=time.perf_counter() - turn.started,
        )
        self.turns.append(record)
        return record

    @property
    def _reply_room(self) -> int:
        """Tokens the policy may write and still leave room for what the engine must answer."""
        return self.room - TAIL_TOKENS - self.profile.max_calls * CALL_TOKENS

    def _live_tokens(self) -> dict[str, int]:
        return {b.handle: b.tokens for b in self.ledger.live if b.kind is BlockKind.CHUNK and b.handle}

    def _flush(self, turn: Turn) -> None:
        if self.batch is not None and self.batch.handles:
            turn.flushed.append(self.batch.flush(self.ledger))

    def _reprefill(self) -> int:
        """Tokens of the next prompt that a server had computed and must compute again.

        It holds the last prompt and the reply to it. What stands there behind the first block that an edit removed
        is lost, however many edits there were.
        """
        if not self._cached:
            return 0
        last = self._cached[-1].seq
        kept = [block for block in self.ledger.live if block.seq <= last]
        common = 0
        for old, new in zip(self._cached, kept, strict=False):
            if old.seq != new.seq:
                break
            common += 1
        return sum(block.tokens for block in kept[common:])


def _specs_text(specs: Sequence[ToolSpec]) -> str:
    return json.dumps([{"type": "function", "function": asdict(spec)} for spec in specs], ensure_ascii=False)


def _plain_name(name: str) -> str:
    """Models trained on harmony write `functions.search_corpus`."""
    return valid_unicode(name.removeprefix("functions.").strip())


def _argument_text(arguments: Any) -> str:
    return valid_unicode(arguments if isinstance(arguments, str) else canonical_arguments(arguments))


def _observation_record(observation: Observation) -> ObservationRecord:
    return ObservationRecord(
        call_id=observation.call.id,
        tool=observation.call.name,
        outcome=str(observation.outcome),
        message=observation.message,
        shown=observation.shown,
        repeats=observation.repeats,
        receipt=observation.receipt.as_dict() if observation.receipt else None,
    )
