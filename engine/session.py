"""The state of one search: ledger, evidence, budget, and the record of its turns."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from thresher.context import (
    Block,
    BlockDraft,
    BlockKind,
    Budget,
    Call,
    ChatRenderer,
    Evidence,
    EvidenceStore,
    Ledger,
    PruneBatch,
    Receipt,
    Renderer,
    Role,
    Tier,
    TokenCounter,
    turns_expected,
)
from thresher.engine.errors import InvalidRequest
from thresher.engine.observe import Display
from thresher.engine.policy import Decision, Observation, Outcome, ToolSpec, View
from thresher.engine.profiles import Profile
from thresher.engine.requests import Edits, SearchRequest
from thresher.engine.strategies import STRATEGIES
from thresher.engine.tokenizers import valid_unicode
from thresher.engine.tools.base import Finish, Tool, ToolResult
from thresher.engine.trajectory import TurnRecord, canonical_arguments, dump_event
from thresher.engine.turns import Tally, Turn

CALL_TOKENS = 48
"""Room kept for the head of each observation that a turn may hold."""
TOKENS_A_CALL = 1_024
"""A context of fewer tokens than so many for each call that a profile allows in a turn allows fewer calls."""
TAIL_TOKENS = 352
"""Room kept for the end of a turn: usage line and notices, two clipped messages (what was repaired, what the engine
took out), and the tokens that open the policy's next reply where a prompt is made of ids."""


class Session:
    """Owns the ledger of one search. Everything that enters the context goes through here, sized before it enters."""

    def __init__(
        self,
        request: SearchRequest,
        *,
        profile: Profile,
        tools: Sequence[Tool],
        counter: TokenCounter,
        renderer: Renderer | None = None,
    ) -> None:
        self.request = request
        self.profile = profile
        self.wording = profile.wording
        self.budget: Budget = request.budget(profile.budget)
        self.strategy = STRATEGIES[request.strategy]
        self.fold_due = False
        self.tools = self.offered(tools)
        demanded = self.strategy.demands
        self.specs = tuple(
            tool.spec
            for tool in self.tools
            if tool.name not in profile.unlisted or (demanded is not None and tool.edit is demanded)
        )
        self.ledger = Ledger(counter, renderer or ChatRenderer(profile.frame))
        self.store = EvidenceStore()
        self.batch = PruneBatch(profile.flush) if request.edits is Edits.BATCHED else None
        self.turns: list[TurnRecord] = []
        self.tally = Tally()
        self.warnings: list[str] = []
        self.finish: Finish | None = None
        self.failures: list[str] = []
        self.answered = False
        self.turns_without_news = 0
        self._observations: tuple[Observation, ...] = ()
        self._cached: tuple[Block, ...] = ()
        self._display = Display(self.ledger, self.store, self.budget, profile)
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

    def offered(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Those of the tools that the profile has, as it has them, and that the strategy offers."""
        return self.strategy.tools(self.profile.tools(tools))

    @property
    def room(self) -> int:
        """Tokens left before the total."""
        return self.budget.total - self.ledger.tokens

    @property
    def out_of_room(self) -> bool:
        """Whether another turn can no longer be guaranteed to fit."""
        return self._reply_room < self._most_calls * CALL_TOKENS

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
            strategy=self.request.strategy,
            fold_due=self.fold_due,
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
        most = self._most_calls
        calls = tuple(
            Call(f"t{turn.index}.{number}", _plain_name(use.name), _argument_text(use.arguments))
            for number, use in enumerate(decision.calls[:most], 1)
        )
        turn.decision = replace(
            decision,
            reasoning=valid_unicode(decision.reasoning),
            faults=tuple(valid_unicode(fault) for fault in decision.faults),
        )
        drafts = [
            BlockDraft(
                BlockKind.REASONING,
                turn.decision.reasoning,
                turn=turn.index,
                handle=f"r{turn.index}",
                opens=Role.ASSISTANT,
                ids=decision.reasoning_ids,
            )
        ]
        drafts += [
            BlockDraft(BlockKind.CALL, "", turn=turn.index, handle=call.id, call=call, ids=use.ids)
            for call, use in zip(calls, decision.calls, strict=False)
        ]
        if drafts[1:] and (beyond := tuple(i for use in decision.calls[most:] for i in use.ids)):
            # What was sampled stays in the prompt, also where its calls are too many to run.
            drafts[-1] = replace(drafts[-1], ids=drafts[-1].ids + beyond)
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
        self.tally.recoveries += len(decision.faults)
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
        if not (self._flush_pays or self.budget.tier(self.ledger.tokens) is not Tier.OK):
            return staged
        flushed = self.batch.flush(self.ledger)
        return replace(
            flushed,
            unknown=staged.unknown,
            unchanged=staged.unchanged,
            protected=staged.protected,
            blockers=staged.blockers,
        )

    def describe(self, receipt: Receipt) -> str:
        """A receipt in the words of the profile."""
        return self.wording.receipt(receipt)

    def refusal(self, tool: Tool) -> ToolResult | None:
        """Why a call may not run now: past the hard limit, or because a fold is due. None: it may."""
        if self.over_hard and not tool.past_hard:
            return ToolResult(Outcome.REJECTED, self.wording.refused_hard.format(tools=self._past_hard))
        if self.fold_due and not tool.past_hard:
            return ToolResult(Outcome.REJECTED, self.wording.refused_unfolded)
        return None

    def adopt(self, evidence: Evidence, *, agent: str) -> Evidence:
        """Take up evidence that a sub-agent found, under an id of this search; what is known already stays as it is."""
        known = self.store.find(evidence.key)
        if known is not None:
            return known
        handle = self._display.next_handle(evidence.document_id)
        return self.store.add(replace(evidence, id=handle, agent=agent))

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
        if observation.receipt is not None and observation.receipt.note is not None:
            self.fold_due = False
        if self.batch is not None:
            if observation.receipt is not None:
                self.batch.withdraw(observation.receipt.removed)
            # Found again in a later turn than it was dropped in: it is wanted after all.
            self.batch.withdraw([i for i in observation.repeats if i in turn.staged_before])
        turn.observations.append(observation)
        return observation

    def end_turn(self, turn: Turn) -> TurnRecord:
        """Close a turn: what was repaired, what the strategy does, the usage line and, past a limit, a notice."""
        if self._flush_pays or self.budget.tier(self.ledger.tokens) is not Tier.OK:
            self._flush(turn)
        if not turn.calls:
            notice = BlockDraft(BlockKind.NOTICE, self.wording.no_call, turn=turn.index, opens=Role.USER)
            self.ledger.append(notice)
        if turn.decision.faults:
            words = self.wording.repaired.format(faults="; ".join(turn.decision.faults))
            self._display.append_words(words, turn.index)
        intervention = self.strategy.after_turn(self, turn.index)
        if intervention is not None:
            turn.managed.append(intervention.receipt)
            if intervention.words:
                self._display.append_words(intervention.words, turn.index)
        used = self.ledger.tokens
        lines = [self.wording.usage.format(used=used, total=self.budget.total)]
        if turn.dropped:
            lines.append(self.wording.dropped.format(count=turn.dropped, most=self._most_calls))
        if turn.flushed:
            lines.append(self.wording.flushed.format(count=sum(len(receipt.removed) for receipt in turn.flushed)))
        tier = self.budget.tier(used)
        if tier is Tier.HARD:
            lines.append(self.wording.hard.format(tools=self._past_hard))
        elif tier is Tier.SOFT and self.request.strategy in self.wording.soft:
            lines.append(self.wording.soft[self.request.strategy])
        self.ledger.append(BlockDraft(BlockKind.USAGE, "\n".join(lines) + "\n", turn=turn.index))
        news = any(observation.news for observation in turn.observations)
        self.turns_without_news = 0 if news else self.turns_without_news + 1
        self._observations = tuple(turn.observations)
        return self.record(turn)

    def record(self, turn: Turn) -> TurnRecord:
        """Keep a turn, also one that a limit cut short: what it did to the ledger so far stays."""
        self.tally.peak_context_tokens = max(self.tally.peak_context_tokens, self.ledger.tokens)
        self.tally.model_seconds += turn.model_seconds
        record = turn.record(self.ledger)
        self.turns.append(record)
        return record

    @property
    def _reply_room(self) -> int:
        """Tokens the policy may write and still leave room for what the engine must answer."""
        return self.room - TAIL_TOKENS - self._most_calls * CALL_TOKENS

    @property
    def _most_calls(self) -> int:
        """Calls that one turn may hold. A small context has room for the answers to few."""
        return max(1, min(self.profile.max_calls, self.budget.total // TOKENS_A_CALL))

    @property
    def _past_hard(self) -> str:
        """Names of the tools that are accepted past the hard limit, as a phrase."""
        names = [tool.name for tool in self.tools if tool.past_hard]
        return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

    def _live_tokens(self) -> dict[str, int]:
        return {b.handle: b.tokens for b in self.ledger.live if b.kind is BlockKind.CHUNK and b.handle}

    @property
    def _flush_pays(self) -> bool:
        """Whether the batch, if there is one, is due by its own rule."""
        if self.batch is None or not self.batch.handles:
            return False
        done = len(self.turns) + 1
        computed = self._cached[-1].seq if self._cached else -1
        return self.batch.due(self.ledger, turns=turns_expected(done, self.request.turns - done), computed=computed)

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
            if old is not new:  # another block, or this one without its words
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
