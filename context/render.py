"""One renderer for serving and training: blocks to text pieces, pieces to chat messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from thresher.context.blocks import Block, BlockDraft, BlockKind, ChunkHeader, Role
from thresher.context.framing import frame_chunk, frame_note
from thresher.context.tokens import TokenCounter

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a policy is sent.

    Attributes:
        messages: chat messages in the OpenAI format; `tools`: the tool specifications sent with them.
        tokens: the exact length of both, the sum over the live blocks.
        digest: hex SHA-256 of what is sent; two prompts with one digest are byte-identical.
        ids: the prompt as token ids, where a renderer for tokens made it; None: chat messages only.
    """

    messages: tuple[Message, ...]
    tools: tuple[Message, ...]
    tokens: int
    digest: str
    ids: tuple[int, ...] | None = None


class Renderer(Protocol):
    """Turns blocks into the prompt. What a block contributes depends on that block alone."""

    def measure(self, draft: BlockDraft, counter: TokenCounter) -> tuple[str, int]:
        """The text that a block contributes to the prompt, and its exact tokens, framing included."""

    def render(self, blocks: Iterable[Block]) -> Prompt:
        """The prompt made of live blocks, in order; its tokens are the sum of theirs."""

    def joined(self, draft: BlockDraft) -> bool:
        """Whether a call shares its message's sampled ids with the call before it, so that no edit can part them."""


ChunkFrame = Callable[[str, ChunkHeader, str, int], str]
"""Puts a chunk into its frame: evidence id, header, verbatim text, tokens of the text. No text may forge a frame."""


def block_text(draft: BlockDraft, counter: TokenCounter, frame: ChunkFrame) -> str:
    """The text of a block, a chunk or a note in its frame, a call as its name and arguments.

    Raises:
        ValueError: the draft lacks what its kind needs.
    """
    if draft.kind is BlockKind.CHUNK:
        if draft.handle is None or draft.header is None:
            raise ValueError("a chunk block needs a handle and a header")
        return frame(draft.handle, draft.header, draft.text, counter.count(draft.text))
    if draft.kind is BlockKind.NOTE:
        if draft.handle is None:
            raise ValueError("a note block needs a handle")
        return frame_note(draft.handle, draft.evidence_ids, draft.text)
    if draft.kind is BlockKind.CALL:
        if draft.call is None:
            raise ValueError("a call block needs its call")
        return f"{draft.call.name} {draft.call.arguments}"
    return draft.text


class ChatRenderer:
    """Renders to OpenAI chat messages with native tool calls."""

    def __init__(self, frame: ChunkFrame = frame_chunk) -> None:
        self._frame = frame

    def measure(self, draft: BlockDraft, counter: TokenCounter) -> tuple[str, int]:
        """The text of a block and its tokens; every message and every call adds the chat format's own."""
        piece = block_text(draft, counter, self._frame)
        framed = draft.opens is not None or draft.kind is BlockKind.CALL
        return piece, counter.count(piece) + (counter.message_overhead if framed else 0)

    def joined(self, draft: BlockDraft) -> bool:
        """Never: each call is an entry of its own."""
        return False

    def render(self, blocks: Iterable[Block]) -> Prompt:
        """Join the pieces of live blocks into messages."""
        messages: list[Message] = []
        tools: list[str] = []
        tokens = 0
        for block in blocks:
            draft = block.draft
            tokens += block.tokens
            if draft.opens is not None:
                messages.append(_open(draft))
            if draft.kind is BlockKind.TOOLS:
                tools.append(block.piece)
            elif draft.kind is BlockKind.CALL:
                messages[-1].setdefault("tool_calls", []).append(_tool_call(draft))
            else:
                messages[-1]["content"] += block.piece
        specifications = tuple(tool for piece in tools for tool in json.loads(piece))
        return Prompt(tuple(messages), specifications, tokens, _digest(tools, messages))


def _digest(tools: list[str], messages: list[Message]) -> str:
    """Of every string, its length before it, so that no two prompts are alike. JSON would take four times as long."""
    parts = [f"{len(tools)} {len(messages)}", *tools]
    for message in messages:
        calls = message.get("tool_calls", ())
        parts += message["role"], message.get("tool_call_id", ""), message["content"], str(len(calls))
        for call in calls:
            parts += call["id"], call["function"]["name"], call["function"]["arguments"]
    framed = b"".join(b"%d:%b" % (len(part), part) for part in (p.encode("utf-8", "surrogatepass") for p in parts))
    return hashlib.sha256(framed).hexdigest()


def _open(draft: BlockDraft) -> Message:
    message: Message = {"role": str(draft.opens), "content": ""}
    if draft.opens is Role.TOOL and draft.call is not None:
        message["tool_call_id"] = draft.call.id
    return message


def _tool_call(draft: BlockDraft) -> dict[str, Any]:
    assert draft.call is not None
    return {
        "id": draft.call.id,
        "type": "function",
        "function": {"name": draft.call.name, "arguments": draft.call.arguments},
    }
