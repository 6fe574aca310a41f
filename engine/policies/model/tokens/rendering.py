"""Blocks to token ids: one renderer, and a format for each way of framing messages.

Every block is encoded by itself, so lengths add up; what a model sampled is taken over id by id. A message's closing
tokens are counted with the block that opens it, and written behind its last block.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thresher.context import Block, BlockDraft, BlockKind, Prompt, Role, TokenCounter
from thresher.context.framing import frame_chunk
from thresher.context.render import ChunkFrame, block_text
from thresher.engine.policies.model.tokens.encoding import Codec, CodecCounter

KEPT_DRAFTS = 1_024
"""Drafts whose ids are kept, those used last. A context holds a few hundred; one that was dropped is encoded again, to
the same ids."""
NAME_CHARACTERS = 64

Ids = tuple[int, ...]


class Format(Protocol):
    """How one family of models frames messages."""

    @property
    def codec(self) -> Codec:
        """The vocabulary."""

    @property
    def generation(self) -> Ids:
        """What follows a prompt so that the model writes its turn: part of what is sent, not of the context."""

    def open(self, draft: BlockDraft) -> Ids:
        """What stands before the block that opens a message."""

    def close(self, draft: BlockDraft) -> Ids:
        """What stands behind the last block of the message that this block opens."""

    def body(self, draft: BlockDraft, piece: str) -> Ids:
        """The block itself; `piece` is its text with a chunk's or note's frame. Sampled ids are not asked for."""

    def joined(self, draft: BlockDraft) -> bool:
        """Whether these sampled ids go on within the message of the call before."""


@dataclass(frozen=True, slots=True)
class _Rendered:
    draft: BlockDraft
    piece: str
    open: Ids
    body: Sequence[int]
    close: Ids

    @property
    def tokens(self) -> int:
        return len(self.open) + len(self.body) + len(self.close)


class TokenRenderer:
    """Renders to token ids. `frame` puts a chunk into its frame. Holds no state but a cache; one for each search."""

    def __init__(self, layout: Format, frame: ChunkFrame = frame_chunk) -> None:
        self.format = layout
        self.counter = CodecCounter(layout.codec)
        self._frame = frame
        self._kept: OrderedDict[int, _Rendered] = OrderedDict()

    def measure(self, draft: BlockDraft, counter: TokenCounter | None = None) -> tuple[str, int]:
        """The text of a block, and how many ids it adds to the prompt. The format's own vocabulary counts."""
        rendered = self._rendered(draft)
        return rendered.piece, rendered.tokens

    def render(self, blocks: Iterable[Block]) -> Prompt:
        """The prompt, without the generation tokens that `generation_ids` adds. It holds ids and no messages."""
        ids: list[int] = []
        closing: Ids = ()
        for block in blocks:
            rendered = self._rendered(block.draft)
            if block.draft.opens is not None:
                ids += closing
                closing = rendered.close
            ids += rendered.open
            ids += rendered.body
        ids += closing
        digest = hashlib.sha256(array("I", ids).tobytes()).hexdigest()
        return Prompt((), (), len(ids), digest, tuple(ids))

    def joined(self, draft: BlockDraft) -> bool:
        """Whether a call shares its sampled message with the call before it: they can only be pruned together."""
        return bool(draft.kind is BlockKind.CALL and draft.ids and self.format.joined(draft))

    def generation_ids(self, prompt: Prompt) -> Ids:
        """What the model is sent: the prompt, and the opening of its turn."""
        if prompt.ids is None:
            raise ValueError("this prompt was rendered to messages: give the session the policy's own renderer")
        return prompt.ids + self.format.generation

    def _rendered(self, draft: BlockDraft) -> _Rendered:
        kept = self._kept.get(id(draft))
        if kept is not None:  # it holds the draft, so no other can have this address
            self._kept.move_to_end(id(draft))
            return kept
        piece = block_text(draft, self.counter, self._frame)
        opens = draft.opens is not None
        rendered = _Rendered(
            draft,
            piece,
            self.format.open(draft) if opens else (),
            draft.ids or array("I", self.format.body(draft, piece)),  # an eighth of a tuple's size
            self.format.close(draft) if opens else (),
        )
        self._kept[id(draft)] = rendered
        if len(self._kept) > KEPT_DRAFTS:
            self._kept.popitem(last=False)
        return rendered


def told_functions(piece: str) -> list[dict[str, Any]]:
    """The functions of a `TOOLS` block, without what only costs tokens: the schema's name for the arguments."""
    functions = [spec["function"] for spec in json.loads(piece)]
    return [
        {**function, "parameters": {k: v for k, v in function["parameters"].items() if k != "description"}}
        for function in functions
    ]


def plain_name(name: str) -> str:
    """A tool's name as a header may hold it. Policies can invent names; a header is no place for their sentences."""
    kept = "".join(c for c in name[:NAME_CHARACTERS] if c.isascii() and (c.isalnum() or c in "_-."))
    return kept or "unknown"


def role_of(draft: BlockDraft) -> Role:
    """The role of the message that a block opens."""
    if draft.opens is None:
        raise ValueError("only a block that opens a message has a role")
    return draft.opens


def shared_length(one: Ids, other: Ids) -> int:
    """Length of the common beginning, by halving: slices compare much faster than a loop steps."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
