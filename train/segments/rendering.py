"""Rows for supervised fine-tuning: a recorded search as the student model would have written it.

A search that was recorded in the student's own tokens (by the student, or by `RenderedPolicy`) is taken as it is. Any
other, of the builtin policy or of a chat model, is rebuilt from its events in the student's style. Then the prompts are
those that the student is served when it writes exactly this, but for two things that only a search can tell: how many
passages would have fitted its budget, and when a notice of a limit would have come.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thresher.context import BlockKind, Edited, EditKind, Ledger, Receipt
from thresher.engine.errors import ReplayMismatch
from thresher.engine.policies.model.tokens.rendering import Ids, TokenRenderer
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.policy import Outcome, ToolSpec
from thresher.engine.trajectory import Trajectory, TurnRecord, load_event
from thresher.train.segments.errors import NoLongerFits, NotWritable
from thresher.train.segments.segment import Segment
from thresher.train.segments.splitting import merged
from thresher.train.segments.turns import TurnTokens, agents_of, own_turns
from thresher.train.segments.writing import PlainCall, Written, as_told, write_turn

_COUNTS = ("tokens_freed", "tokens_added", "tokens_reprefill", "tokens_after")

UNWRITTEN = "longer than the student may write (sampling.max_reply_tokens), or nothing that its style can express"
"""Why a turn of a search in the student's tokens was sampled by nobody."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What a search teaches.

    Attributes:
        turns: how many turns are trained.
        left_out: turns that stay in the context of others and are not trained, by reason.
        rebuilt: whether it was rebuilt in the student's style, for it was recorded in another.
    """

    segments: tuple[Segment, ...]
    turns: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    rebuilt: bool = False


def taught(trajectory: Trajectory, style: Style, *, limit: int | None = None) -> Taught:
    """Rows without logprobs in which what the student should write is marked as sampled.

    Turns in which something went wrong are no examples: replies that had to be repaired, calls that were refused, turns
    without a call, and what the student's style cannot express.

    Args:
        limit: tokens that a prompt and its reply may have together; None is the total budget of each search.

    Raises:
        NoLongerFits: rebuilt in the student's tokens, a turn is longer than that.
    """
    left_out: Counter[str] = Counter()
    turns: list[TurnTokens] = []
    rebuilt = False
    for agent, part in agents_of(trajectory):
        poor = {turn.index: reason for turn in part.turns if (reason := _poor(turn))}
        try:
            recorded = own_turns(part, style, agent)
        except ReplayMismatch:  # sampled, but in another vocabulary or format
            recorded = []
        if recorded:
            unsampled = {turn.index for turn in part.turns if turn.events} - {turn.turn for turn in recorded}
            left_out.update(poor.get(index, UNWRITTEN) for index in unsampled)
            left_out.update(poor[turn.turn] for turn in recorded if turn.turn in poor)
            turns += [replace(turn, logprobs=None) for turn in recorded if turn.turn not in poor]
        elif part.turns:
            rebuilt = True
            rebuild = _Rebuilding(part, style, agent, limit or part.budget["total"])
            turns += rebuild.turns(poor)
            left_out.update(rebuild.left_out)
    return Taught(tuple(merged(turns)), len(turns), dict(left_out), rebuilt)


def _poor(turn: TurnRecord) -> str | None:
    """Why a turn is no example to follow; None if it is one."""
    if not turn.calls:
        return "it has no call"
    if turn.faults:
        return "the reply was repaired"
    if any(seen.outcome == Outcome.REJECTED for seen in turn.observations):
        return "a call was refused"
    return None


class _Rebuilding:
    """One agent's search, replayed with each turn of the policy in the student's ids."""

    def __init__(self, trajectory: Trajectory, style: Style, agent: str, limit: int) -> None:
        self.left_out: Counter[str] = Counter()
        self._trajectory = trajectory
        self._style = style
        self._agent = agent
        self._limit = limit
        self._evidence = {record.id: record for record in trajectory.evidence}
        self._renderer = TokenRenderer(style.format, style.frame)
        self._ledger = Ledger(self._renderer.counter, self._renderer)
        total = f"{trajectory.budget['total']:,}"
        self._used = re.compile(rf"\d[\d,]*(?=/{re.escape(total)})")

    def turns(self, poor: Mapping[int, str]) -> list[TurnTokens]:
        for event in self._trajectory.opening:
            self._ledger.apply(load_event(event, self._evidence))
        tools = tools_of(self._ledger)
        taught: list[TurnTokens] = []
        for record in self._trajectory.turns:
            prompt = self._renderer.generation_ids(self._ledger.prompt())
            written = self._written(record, tools, poor)
            if len(prompt) + len(written.output_ids if written else ()) > self._limit:
                raise NoLongerFits(
                    f"turn {record.index} of {self._trajectory.id} takes {len(prompt):,} tokens in the student's "
                    f"vocabulary and may take {self._limit:,}: leave this search out, or collect searches with the "
                    "student's own budget"
                )
            if written is not None and record.index not in poor:
                taught.append(TurnTokens(record.index, prompt, written.output_ids, agent=self._agent))
            self._replay(record, written)
        return taught

    def _written(self, record: TurnRecord, tools: tuple[ToolSpec, ...], poor: Mapping[int, str]) -> Written | None:
        """What the student would write; None where it could not, and the engine's own rendering has to do."""
        try:
            calls = [as_told(PlainCall(call.name, call.arguments), tools) for call in record.calls]
            written = write_turn(self._style, record.reasoning, calls, tools)
        except NotWritable as problem:
            if record.calls or record.events:
                self.left_out[poor.get(record.index, str(problem))] += 1
            return None
        if record.index in poor:
            self.left_out[poor[record.index]] += 1
        return written

    def _replay(self, record: TurnRecord, written: Written | None) -> None:
        """Do what the turn did to the ledger: its own words in the student's ids, counts as the student's tokens."""
        own: list[Ids] = []
        if written is not None:
            own = [written.reply.reasoning_ids, *(use.ids for use in written.reply.uses)]
        told = [seen.receipt for seen in record.observations if seen.receipt is not None]
        recounted: dict[str, str] = {}
        for data in record.events:
            event = load_event(data, self._evidence)
            if isinstance(event, Edited):
                recounted.update(_recounted(self._edit(event), told))
                continue
            draft = event.draft
            if draft.kind in (BlockKind.REASONING, BlockKind.CALL):
                draft = replace(draft, ids=own.pop(0) if own else ())
            elif draft.kind is BlockKind.USAGE:
                draft = replace(draft, text=self._used.sub(f"{self._ledger.tokens:,}", draft.text, count=1))
            elif draft.kind is BlockKind.NOTICE:
                for recorded, ours in recounted.items():
                    draft = replace(draft, text=draft.text.replace(recorded, ours))
            self._ledger.append(draft)

    def _edit(self, event: Edited) -> Receipt:
        if event.kind is EditKind.PRUNE:
            return self._ledger.prune(event.handles)
        if event.kind is EditKind.RESTORE:
            return self._ledger.restore(event.handles, turn=event.turn)
        return self._ledger.fold(event.handles, event.note or "", turn=event.turn)


def _recounted(receipt: Receipt, told: list[dict[str, Any]]) -> dict[str, str]:
    """What the policy was told of this edit, and what the student is told of it, in whose tokens it frees other counts.

    Nothing where the edit was not told in these words.
    """
    done = [list(receipt.removed), list(receipt.restored)]
    for data in told:
        if data["kind"] == receipt.kind and [data.get("removed", []), data.get("restored", [])] == done:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
            recorded = Receipt(**{**fields, "kind": EditKind(data["kind"])})
            counts = {name: getattr(receipt, name) for name in _COUNTS}
            return {recorded.describe(): replace(recorded, **counts).describe()}
    return {}


def tools_of(ledger: Ledger) -> tuple[ToolSpec, ...]:
    """The tools that a context tells of."""
    texts = [block.draft.text for block in ledger.live if block.kind is BlockKind.TOOLS]
    told = [entry["function"] for text in texts for entry in json.loads(text)]
    return tuple(ToolSpec(f["name"], f["description"], f["parameters"]) for f in told)
