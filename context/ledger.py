"""The ledger: the context as an ordered list of blocks, and the edits on it.

Blocks are only ever appended; an edit marks blocks as no longer live, and a restore or a fold appends new ones. So a
prompt extends the one before it unless an edit removed something, and every change is an event that can be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thresher.context.blocks import Block, BlockDraft, BlockKind
from thresher.context.receipts import EditKind, Receipt
from thresher.context.render import ChatRenderer, Prompt, Renderer
from thresher.context.structure import Removal, Structure
from thresher.context.tokens import TokenCounter

MAX_MEASURED = 128
"""Drafts whose measure is kept from sizing them to placing them; an observation holds fewer."""
MAX_POINTERS = 64
"""Evidence ids that one note points at."""
_WORD = re.compile(r"[^\s,;:()\[\]<>\"']*[^\s,;:()\[\]<>\"'.]")


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


class Ledger:
    """A context under construction. Not thread-safe: one search, one ledger."""

    def __init__(self, counter: TokenCounter, renderer: Renderer | None = None) -> None:
        self._counter = counter
        self._renderer: Renderer = renderer or ChatRenderer()
        self._blocks: list[Block] = []
        self._live: dict[int, Block] = {}
        self._by_handle: dict[str, int] = {}
        self._structure = Structure()
        self._measured: dict[BlockDraft, tuple[str, int]] = {}
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
        """Whether a block with this handle is in the next prompt, with its words."""
        block = self._live.get(self._by_handle.get(handle, -1))
        return block is not None and not block.blank

    def block(self, handle: str) -> Block | None:
        """The latest block with this handle, live or pruned."""
        seq = self._by_handle.get(handle)
        return None if seq is None else self._blocks[seq]

    def tokens_of(self, draft: BlockDraft) -> int:
        """Tokens that appending `draft` would take."""
        return self._measure(draft)[1]

    def append(self, draft: BlockDraft) -> Block:
        """Add a block at the end of the context.

        Raises:
            ValueError: its handle is in the context already, or no message is open that it could stand in.
        """
        if draft.handle is not None and self.is_live(draft.handle):
            raise ValueError(f"block {draft.handle} is already in the context")
        if draft.opens is None and not self._live:
            raise ValueError("the first block of a context must open a message")
        if draft.kind not in (BlockKind.REASONING, BlockKind.CALL) and draft.opens is None:
            self._check_end()
        block = self._place(draft)
        self.events.append(Appended(draft))
        return block

    def prompt(self) -> Prompt:
        """Render the live blocks."""
        return self._renderer.render(self._live.values())

    def prune(self, handles: Sequence[str]) -> Receipt:
        """Remove blocks by handle, and what falls with them. Unknown handles are reported, never accepted in silence.

        A call is protected while chunks or notes stand in its answer, and until it is answered.
        """
        removal = self.removal(handles)
        freed, reprefill = self._take_out(removal)
        return self._record(
            Edited(EditKind.PRUNE, tuple(handles)),
            removal,
            removed=removal.handles,
            tokens_freed=freed,
            tokens_reprefill=reprefill,
        )

    def restore(self, handles: Sequence[str], *, turn: int = 0) -> Receipt:
        """Bring pruned chunks and notes back, at the end of the context, where they break no cached prefix.

        They count as blocks of turn `turn` from then on.
        """
        asked = self._sort_out(handles, lambda block: block.restorable, live=False)
        found = asked.asked
        if found:
            self._check_end()
        added = sum(self._place(replace(block.draft, turn=turn)).tokens for block in found)
        return self._record(
            Edited(EditKind.RESTORE, tuple(handles), turn),
            asked,
            restored=tuple(block.handle or "" for block in found),
            tokens_added=added,
        )

    def fold(self, handles: Sequence[str], note: str, *, turn: int = 0) -> Receipt:
        """Replace blocks, and what falls with them, by a note at the end of the context that points at their evidence.

        Chunks in the answers of folded calls are folded too. Without a foldable block nothing is written.
        """
        removal = self.removal(handles, fold=True)
        if not removal.asked:
            return self._record(Edited(EditKind.FOLD, tuple(handles), turn, note), removal)
        freed, reprefill = self._take_out(removal)
        self._check_end()
        self._notes += 1
        written = self._place(self._note(f"n{self._notes}", removal, note, turn))
        return self._record(
            Edited(EditKind.FOLD, tuple(handles), turn, note),
            removal,
            removed=removal.handles,
            note=written.handle,
            tokens_freed=freed,
            tokens_added=written.tokens,
            tokens_reprefill=reprefill,
        )

    def removal(self, handles: Sequence[str], *, fold: bool = False) -> Removal:
        """What a prune (or a fold) of these handles would take out; nothing is done yet."""
        named = self._sort_out(handles, lambda block: block.prunable, live=True)
        removal = self._structure.removal(named.asked, self._live, fold=fold)
        return replace(
            removal,
            unknown=named.unknown,
            unchanged=(*named.unchanged, *removal.unchanged),
            protected=(*named.protected, *removal.protected),
        )

    def cost(self, removal: Removal, *, computed: int | None = None) -> tuple[int, int]:
        """Tokens that a removal frees, and tokens that stay behind the first block it changes.

        Of the latter, with `computed`, only those up to the block of that seq: what a server has computed so far.
        """
        if not removal.gone and not removal.blank:
            return 0, 0
        first = min(block.seq for block in (*removal.gone, *removal.blank))
        freed = sum(block.tokens for block in removal.gone)
        freed += sum(block.tokens - self._blanked(block).tokens for block in removal.blank)
        last = len(self._blocks) if computed is None else computed
        gone = {block.seq for block in removal.gone}
        blank = {block.seq: self._blanked(block).tokens for block in removal.blank}
        stay = (block for seq, block in self._live.items() if first <= seq <= last and seq not in gone)
        return freed, sum(blank.get(block.seq, block.tokens) for block in stay)

    def tokens_of_fold(self, removal: Removal, note: str) -> int:
        """Tokens that the note of a fold would take."""
        return self.tokens_of(self._note(f"n{self._notes + 1}", removal, note, 0))

    def foldable(self, *, before: int) -> tuple[str, ...]:
        """Handles whose fold takes all turns before turn `before`, and what edits left beside them."""
        blocks = [block for block in self._live.values() if block.handle and block.prunable]
        return tuple(block.handle or "" for block in blocks if block.draft.turn < before)

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

    def _sort_out(self, handles: Sequence[str], may: Callable[[Block], bool], *, live: bool) -> Removal:
        """Which of these handles an edit of blocks that are `live` (or are not) could act on, and why not the rest."""
        asked: list[Block] = []
        unknown: list[str] = []
        unchanged: list[str] = []
        protected: list[str] = []
        for handle in dict.fromkeys(handles):
            block = self.block(handle)
            if block is None:
                unknown.append(handle)
            elif not may(block):
                protected.append(handle)
            elif self.is_live(handle) is not live:
                unchanged.append(handle)
            else:
                asked.append(block)
        return Removal(tuple(asked), unknown=tuple(unknown), unchanged=tuple(unchanged), protected=tuple(protected))

    def _place(self, draft: BlockDraft) -> Block:
        piece, tokens = self._measure(draft)
        self._measured.pop(draft, None)
        block = Block(len(self._blocks), draft, piece, tokens)
        self._structure.add(block, self._last, joined=self._renderer.joined(draft))
        self._blocks.append(block)
        self._live[block.seq] = block
        self._tokens += block.tokens
        if draft.handle is not None:
            self._by_handle[draft.handle] = block.seq
        return block

    def _measure(self, draft: BlockDraft) -> tuple[str, int]:
        """What a block will contribute. Most are measured to see whether they fit, and again when they are placed."""
        known = self._measured.get(draft)
        if known is None:
            if len(self._measured) >= MAX_MEASURED:
                self._measured.clear()
            known = self._measured[draft] = self._renderer.measure(draft, self._counter)
        return known

    @property
    def _last(self) -> Block | None:
        return next(reversed(self._live.values()), None)

    def _check_end(self) -> None:
        """Refuse to put words of the engine into a message of the policy."""
        if self._last is not None and self._structure.written_by_policy(self._last):
            raise ValueError("the context ends with the policy's own words: open an observation before adding to it")

    def _take_out(self, removal: Removal) -> tuple[int, int]:
        """Do it; returns what `cost` says of it."""
        freed, behind = self.cost(removal)
        for block in removal.gone:
            del self._live[block.seq]
        for block in removal.blank:
            self._live[block.seq] = self._blanked(block)
        self._tokens -= freed
        return freed, behind

    def _blanked(self, block: Block) -> Block:
        draft = block.draft.without_words()
        piece, tokens = self._renderer.measure(draft, self._counter)
        return Block(block.seq, draft, piece, tokens, blank=True)

    def _note(self, handle: str, removal: Removal, text: str, turn: int) -> BlockDraft:
        """A note that points at the evidence it replaces.

        Where that is more than `MAX_POINTERS`, at what its text names and at the newest: a note that is folded into a
        note again and again must not grow with the search.
        """
        evidence: dict[str, None] = {}
        for block in removal.gone:  # notes point at what is older than the chunks
            evidence.update(dict.fromkeys(block.draft.evidence_ids))
        evidence.update((b.handle, None) for b in removal.gone if b.kind is BlockKind.CHUNK and b.handle)
        if len(evidence) > MAX_POINTERS:
            words = set(_WORD.findall(text))
            newest = [*evidence][::-1]
            ranked = sorted(newest, key=lambda name: name not in words)
            kept = set(ranked[:MAX_POINTERS])
            evidence = {name: None for name in evidence if name in kept}
        return BlockDraft(BlockKind.NOTE, text, turn=turn, handle=handle, evidence_ids=tuple(evidence))

    def _record(self, event: Edited, removal: Removal, **fields: Any) -> Receipt:
        receipt = Receipt(
            event.kind,
            unknown=removal.unknown,
            unchanged=removal.unchanged,
            protected=removal.protected,
            blockers=removal.blockers,
            tokens_after=self._tokens,
            **fields,
        )
        if receipt.changed:
            self.events.append(event)
        return receipt
