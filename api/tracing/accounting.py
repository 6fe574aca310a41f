"""What filled the context after each turn, and what the turn cost, rebuilt from a trajectory's own ledger events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.api.tracing.cost import Cost
from thresher.context import Block, BlockKind, ChatRenderer, ChunkFrame, Evidence, Ledger, TokenCounter
from thresher.engine.errors import InvalidRequest
from thresher.engine.profiles import DEFAULT, load_profile
from thresher.engine.trajectory import load_event

if TYPE_CHECKING:
    from thresher.engine.trajectory import Trajectory, TurnRecord

GROUPS: Mapping[str, frozenset[BlockKind]] = {
    "instructions": frozenset({BlockKind.SYSTEM, BlockKind.TOOLS, BlockKind.TASK}),
    "policy's words": frozenset({BlockKind.REASONING, BlockKind.CALL}),
    "passages": frozenset({BlockKind.CHUNK}),
    "notes": frozenset({BlockKind.NOTE}),
    "engine's words": frozenset({BlockKind.NOTICE, BlockKind.USAGE}),
}
"""Kinds of blocks as a bar shows them, in the order in which they are drawn."""

_GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
_WRITTEN = GROUPS["policy's words"]


@dataclass(frozen=True, slots=True)
class Account:
    """One turn in tokens.

    Attributes:
        by_group: what the context held after the turn; sums to `used`. Empty where the record could not be rebuilt.
        exact: whether the shares were counted as the policy's model counts; else they were counted in o200k and
            scaled to `used`.
    """

    used: int
    by_group: Mapping[str, int]
    exact: bool
    cost: Cost


def account(trajectory: Trajectory) -> Iterator[Account]:
    """The accounts of all turns, in order. Work is linear in the number of events, and in live blocks a turn."""
    from thresher.engine.tokenizers import default_counter

    books = _Books(trajectory, default_counter())
    for turn in trajectory.turns:
        yield books.turn(turn)


class _Books:
    def __init__(self, trajectory: Trajectory, counter: TokenCounter) -> None:
        self._evidence: dict[str, Evidence] = {e.id: e for e in trajectory.evidence}
        self._ledger: Ledger | None = Ledger(counter, ChatRenderer(_frame(trajectory.profile)))
        self._cached: tuple[Block, ...] = ()
        self._apply(trajectory.opening)

    def turn(self, turn: TurnRecord) -> Account:
        before = None if self._ledger is None else self._ledger.live
        scale = _scale(turn.prompt_tokens, before)
        reprefill = 0 if before is None else round(scale * _lost(self._cached, before))
        blocks = 0 if self._ledger is None else len(self._ledger.blocks)
        self._apply(turn.events)
        after = None if self._ledger is None else self._ledger.live
        written = 0
        if self._ledger is not None:
            reply = [block for block in self._ledger.blocks[blocks:] if block.kind in _WRITTEN]
            written = round(scale * sum(block.tokens for block in reply))
            if reply:
                # What the server has computed: the prompt, and the reply to it.
                self._cached = (*(before or ()), *reply)
        by_group, exact = _shares(after, turn.tokens_after)
        return Account(turn.tokens_after, by_group, exact, _cost(turn, written, reprefill))

    def _apply(self, events: tuple[Mapping[str, object], ...]) -> None:
        """Put events on the books. What cannot be read any more (another release wrote it) closes them."""
        if self._ledger is None:
            return
        try:
            for event in events:
                self._ledger.apply(load_event(event, self._evidence))
        except (KeyError, TypeError, ValueError):
            self._ledger = None


def _frame(profile: str) -> ChunkFrame:
    """How passages were framed. A profile of one's own is not known here, and its shares are scaled."""
    try:
        return load_profile(profile).frame
    except InvalidRequest:
        return DEFAULT.frame


def _scale(tokens: int, blocks: tuple[Block, ...] | None) -> float:
    """How many of the policy's tokens go on one of ours."""
    ours = sum(block.tokens for block in blocks or ())
    return tokens / ours if ours else 1.0


def _lost(cached: tuple[Block, ...], live: tuple[Block, ...]) -> int:
    """Tokens of the prompt that a prefix cache had and must compute again: those behind the first block that went."""
    if not cached:
        return 0
    last = cached[-1].seq
    kept = [block for block in live if block.seq <= last]
    common = 0
    for old, new in zip(cached, kept, strict=False):
        if old.seq != new.seq:
            break
        common += 1
    return sum(block.tokens for block in kept[common:])


def _shares(blocks: tuple[Block, ...] | None, used: int) -> tuple[dict[str, int], bool]:
    """Tokens by group, which sum to `used`: the largest takes what rounding leaves."""
    if not blocks:
        return {}, False
    counts = Counter[str]()
    for block in blocks:
        counts[_GROUP_OF[block.kind]] += block.tokens
    exact = counts.total() == used
    scale = used / counts.total() if counts.total() else 0.0
    shares = {group: round(scale * counts[group]) for group in GROUPS}
    largest = max(shares, key=shares.__getitem__)
    shares[largest] += used - sum(shares.values())
    return shares, exact


def _cost(turn: TurnRecord, written: int, reprefill: int) -> Cost:
    """The server's own counts, where there are any; it says nothing of its cache and 0 in the same way."""
    usage = turn.usage
    return Cost(
        prompt=usage.prompt_tokens if usage and usage.prompt_tokens else turn.prompt_tokens,
        completion=usage.completion_tokens if usage and usage.completion_tokens else written,
        cached=(usage.cached_tokens or None) if usage else None,
        reprefill=reprefill,
        retries=usage.retries if usage else 0,
        seconds=turn.seconds,
        model_seconds=turn.model_seconds,
    )
