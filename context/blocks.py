"""Blocks: the units a context is made of and edited by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class BlockKind(StrEnum):
    """What a block is. Only `PRUNABLE` kinds can be removed by an edit."""

    SYSTEM = "system"
    TOOLS = "tools"
    TASK = "task"
    REASONING = "reasoning"
    CALL = "call"
    CHUNK = "chunk"
    NOTE = "note"
    NOTICE = "notice"
    USAGE = "usage"


PRUNABLE = frozenset({BlockKind.CHUNK, BlockKind.NOTE, BlockKind.REASONING, BlockKind.CALL})
"""Kinds that edits may remove: what documents and notes about them put into the context, and what the policy wrote."""

RESTORABLE = frozenset({BlockKind.CHUNK, BlockKind.NOTE})
"""Kinds that can come back: at the end of the context, where a thought or a call of an old turn has no place."""


class Role(StrEnum):
    """Chat role of the message that a block belongs to."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a tool. `id` is issued by the engine; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What the frame around a chunk says beside its id."""

    document_id: str
    title: str = ""
    seen_before: bool = False


@dataclass(frozen=True, slots=True)
class BlockDraft:
    """A block before the ledger numbers and counts it.

    Attributes:
        handle: the name by which the policy addresses the block: an evidence id for a chunk, `n1` for a note, `r4`
            for the reasoning of turn 4, the call's own id for a call. At most one live block carries a handle.
            None: not addressable.
        text: for a chunk the document's own text, verbatim; framing is added by the renderer. For `TOOLS`, a JSON
            array of tool specifications, which a server's template renders beside the messages.
        opens: the role of the chat message that starts with this block; None continues the message before it.
        call: for a `CALL`, the call; for the opening notice of an observation, the call it answers.
        header: for a chunk, what its frame says.
        evidence_ids: for a note, the evidence it points at.
        ids: for reasoning and calls in token mode, the sampled tokens that are the block; they are never encoded
            again. Empty: the block is encoded from its text.
    """

    kind: BlockKind
    text: str
    turn: int = 0
    handle: str | None = None
    opens: Role | None = None
    call: Call | None = None
    header: ChunkHeader | None = None
    evidence_ids: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()

    @property
    def wordless(self) -> bool:
        """Whether it is reasoning of which nothing but the frame is left, or ever was there."""
        return self.kind is BlockKind.REASONING and not self.text and not self.ids

    def without_words(self) -> BlockDraft:
        """The frame alone: what stays of a turn's reasoning that was pruned while its calls stand."""
        return replace(self, text="", ids=())


@dataclass(frozen=True, slots=True)
class Block:
    """A draft that has its place in a ledger.

    `piece` is the text it contributes to the prompt; `tokens` the exact length of that, message overhead included.
    `blank` says that an edit took its words and left its frame.
    """

    seq: int
    draft: BlockDraft
    piece: str
    tokens: int
    blank: bool = False

    @property
    def kind(self) -> BlockKind:
        """Kind of the block."""
        return self.draft.kind

    @property
    def handle(self) -> str | None:
        """Name by which the policy addresses it."""
        return self.draft.handle

    @property
    def prunable(self) -> bool:
        """Whether an edit may remove it, as far as its kind says."""
        return self.kind in PRUNABLE and (self.draft.opens is None or self.kind is BlockKind.REASONING)

    @property
    def restorable(self) -> bool:
        """Whether a restore may bring it back."""
        return self.kind in RESTORABLE and self.draft.opens is None
