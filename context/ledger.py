"""The ledger: the context as an ordered list of blocks, and the edits on it.

Blocks are only ever appended; an edit marks blocks as no longer live, and a restore or a fold appends new ones. So a
prompt extends the one before it unless an edit removed something, and every change is an event that can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thresher.context.blocks import Block, BlockDraft, BlockKind
from thresher.context.receipts import EditKind, Receipt
from thresher.context.render import ChatRenderer, Prompt, Renderer
from thresher.context.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class Appended:
    """Event: a block was added at the end."""

    draft: BlockDraft


@dataclass(frozen=True, slots=True)
class Edited:
    """Event: an edit was applied. `note` is the text of a fold."""

    kind: EditKind
    handles: tuple[str, ...]
    turn: int = 0
    note: str | None = None


LedgerEvent = Appended | Edited


@dataclass(frozen=True, slots=True)
class Asked:
    """The handles of an edit, sorted: blocks to act on, unknown ones, those already in the state, protected ones."""

    found: tuple[Block, ...]
    unknown: tuple[str, ...]
    unchanged: tuple[str, ...]
    protected: tuple[str, ...]

    @property
    def handles(self) -> tuple[str, ...]:
        """Handles of the blocks to act on."""
        return tuple(block.handle or "" for block in self.found)


class Ledger:
    """A context under construction. Not thread-safe: one search, one ledger."""

    def __init__(self, counter: TokenCounter, renderer: Renderer | None = None) -> None:
        self._counter = counter
        self._renderer: Renderer = renderer or ChatRenderer()
        self._blocks: list[Block] = []
        self._live: dict[int, Block] = {}
        self._by_handle: dict[str, int] = {}
        self._tokens = 0
        self._notes = 0
        self.events: list[LedgerEvent] = []

    @property
    def live(self) -> tuple[Block, ...]:
        """The blocks of the next prompt, in order."""
        return tuple(self._live.values())

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block ever added, live or not."""
        return tuple(self._blocks)

    @property
    def tokens(self) -> int:
        """Length of the next prompt."""
        return self._tokens

    def is_live(self, handle: str) -> bool:
        """Whether a block with this handle is in the next prompt."""
        return self._by_handle.get(handle, -1) in self._live

    def block(self, handle: str) -> Block | None:
        """The latest block with this handle, live or pruned."""
        seq = self._by_handle.get(handle)
        return None if seq is None else self._blocks[seq]

    def tokens_of(self, draft: BlockDraft) -> int:
        """Tokens that appending `draft` would take."""
        return self._measure(draft)[1]

    def append(self, draft: BlockDraft) -> Block:
        """Add a block at the end of the context."""
        if draft.handle is not None and self.is_live(draft.handle):
            raise ValueError(f"block {draft.handle} is already in the context")
        if draft.opens is None and not self._live:
            raise ValueError("the first block of a context must open a message")
        block = self._place(draft)
        self.events.append(Appended(draft))
        return block

    def prompt(self) -> Prompt:
        """Render the live blocks."""
        return self._renderer.render(self._live.values())

    def prune(self, handles: Sequence[str]) -> Receipt:
        """Remove blocks by handle. Unknown handles are reported, never accepted in silence."""
        asked = self.sort_out(handles, live=True)
        freed, reprefill = self._remove(asked.found)
        return self._receipt(
            Edited(EditKind.PRUNE, tuple(handles)),
            asked,
            removed=asked.handles,
            tokens_freed=freed,
            tokens_reprefill=reprefill,
        )

    def restore(self, handles: Sequence[str], *, turn: int = 0) -> Receipt:
        """Bring pruned blocks back, at the end of the context, where they break no cached prefix."""
        asked = self.sort_out(handles, live=False)
        added = sum(self._place(block.draft).tokens for block in asked.found)
        return self._receipt(
            Edited(EditKind.RESTORE, tuple(handles), turn),
            asked,
            restored=asked.handles,
            tokens_added=added,
        )

    def fold(self, handles: Sequence[str], note: str, *, turn: int = 0) -> Receipt:
        """Replace blocks by a note that points at their evidence. Without a foldable block nothing is written."""
        asked = self.sort_out(handles, live=True)
        freed, reprefill = self._remove(asked.found)
        written: Block | None = None
        if asked.found:
            self._notes += 1
            evidence = [e for block in asked.found for e in (block.draft.evidence_ids or (block.handle or "",))]
            written = self._place(
                BlockDraft(
                    BlockKind.NOTE,
                    note,
                    turn=turn,
                    handle=f"n{self._notes}",
                    evidence_ids=tuple(dict.fromkeys(evidence)),
                )
            )
        return self._receipt(
            Edited(EditKind.FOLD, tuple(handles), turn, note),
            asked,
            removed=asked.handles,
            note=written.handle if written else None,
            tokens_freed=freed,
            tokens_added=written.tokens if written else 0,
            tokens_reprefill=reprefill,
        )

    def sort_out(self, handles: Sequence[str], *, live: bool) -> Asked:
        """Which of these handles an edit of blocks that are `live` (or are not) could act on, and why not the rest."""
        found: list[Block] = []
        unknown: list[str] = []
        unchanged: list[str] = []
        protected: list[str] = []
        for handle in dict.fromkeys(handles):
            block = self.block(handle)
            if block is None:
                unknown.append(handle)
            elif not block.prunable:
                protected.append(handle)
            elif self.is_live(handle) is not live:
                unchanged.append(handle)
            else:
                found.append(block)
        return Asked(tuple(found), tuple(unknown), tuple(unchanged), tuple(protected))

    def apply(self, event: LedgerEvent) -> None:
        """Replay one recorded event."""
        if isinstance(event, Appended):
            self.append(event.draft)
        elif event.kind is EditKind.PRUNE:
            self.prune(event.handles)
        elif event.kind is EditKind.RESTORE:
            self.restore(event.handles, turn=event.turn)
        else:
            self.fold(event.handles, event.note or "", turn=event.turn)

    def _measure(self, draft: BlockDraft) -> tuple[str, int]:
        piece = self._renderer.piece(draft, self._counter)
        framed = draft.opens is not None or draft.kind is BlockKind.CALL
        overhead = self._counter.message_overhead if framed else 0
        return piece, self._counter.count(piece) + overhead

    def _place(self, draft: BlockDraft) -> Block:
        piece, tokens = self._measure(draft)
        block = Block(len(self._blocks), draft, piece, tokens)
        self._blocks.append(block)
        self._live[block.seq] = block
        self._tokens += block.tokens
        if draft.handle is not None:
            self._by_handle[draft.handle] = block.seq
        return block

    def _remove(self, blocks: Sequence[Block]) -> tuple[int, int]:
        """Take blocks out; returns tokens freed and tokens behind the first of them that stay."""
        if not blocks:
            return 0, 0
        first = min(block.seq for block in blocks)
        for block in blocks:
            del self._live[block.seq]
        freed = sum(block.tokens for block in blocks)
        self._tokens -= freed
        return freed, sum(block.tokens for seq, block in self._live.items() if seq > first)

    def _receipt(self, event: Edited, asked: Asked, **fields: Any) -> Receipt:
        receipt = Receipt(
            event.kind,
            unknown=asked.unknown,
            unchanged=asked.unchanged,
            protected=asked.protected,
            tokens_after=self._tokens,
            **fields,
        )
        if receipt.changed:
            self.events.append(event)
        return receipt
