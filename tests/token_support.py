"""Helpers for tests of token policies: small contexts, replies written out, and what a prompt must satisfy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stub_model import Reply

from thresher.context import BlockDraft, BlockKind, Call, ChunkHeader, Ledger, Role
from thresher.engine.errors import PolicyError
from thresher.engine.policies.model.tokens.encoding import Codec
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.sampling import Sample
from thresher.engine.policy import ToolSpec

TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "search_corpus",
        "Search the corpus.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}},
            "required": ["query"],
        },
    ),
    ToolSpec(
        "grep_corpus",
        "Find a pattern.",
        {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
    ),
    ToolSpec(
        "prune_chunks",
        "Drop chunks.",
        {
            "type": "object",
            "properties": {"chunk_ids": {"type": "array", "items": {"type": "string"}}},
            "required": ["chunk_ids"],
        },
    ),
)


def specs_text(tools: Sequence[ToolSpec] = TOOLS) -> str:
    """What a session puts into its `TOOLS` block."""
    return json.dumps(
        [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in tools
        ]
    )


def opened(renderer: TokenRenderer, question: str = "Who built the ferry?") -> Ledger:
    """A ledger as a session opens it."""
    ledger = Ledger(renderer.counter, renderer)
    ledger.append(BlockDraft(BlockKind.SYSTEM, "You search.\n", opens=Role.SYSTEM))
    ledger.append(BlockDraft(BlockKind.TOOLS, specs_text()))
    ledger.append(BlockDraft(BlockKind.TASK, question, opens=Role.USER))
    return ledger


def add_turn(
    ledger: Ledger,
    number: int,
    reasoning: str,
    calls: Sequence[tuple[str, dict[str, Any]]],
    chunks: Sequence[tuple[str, str]] = (),
    *,
    reasoning_ids: tuple[int, ...] = (),
    call_ids: Sequence[tuple[int, ...]] = (),
) -> None:
    """A turn as a session writes it; the chunks stand in the answer of the first call."""
    made = [Call(f"t{number}.{i}", name, json.dumps(arguments)) for i, (name, arguments) in enumerate(calls, 1)]
    ids = [*call_ids, *[()] * len(made)]
    ledger.append(
        BlockDraft(
            BlockKind.REASONING, reasoning, turn=number, handle=f"r{number}", opens=Role.ASSISTANT, ids=reasoning_ids
        )
    )
    for call, own in zip(made, ids, strict=False):
        ledger.append(BlockDraft(BlockKind.CALL, "", turn=number, handle=call.id, call=call, ids=own))
    for i, call in enumerate(made):
        ledger.append(BlockDraft(BlockKind.NOTICE, "Done.\n", turn=number, opens=Role.TOOL, call=call))
        for handle, text in chunks if i == 0 else ():
            header = ChunkHeader(f"{handle}.md", handle)
            ledger.append(BlockDraft(BlockKind.CHUNK, text, turn=number, handle=handle, header=header))
    if not made:
        ledger.append(BlockDraft(BlockKind.NOTICE, "No tool was called.\n", turn=number, opens=Role.USER))
    ledger.append(BlockDraft(BlockKind.USAGE, "[Token usage: 1/2]\n", turn=number))


def said(codec: Codec, text: str, **fields: Any) -> Reply:
    """A reply of the stub server: the tokens of `text`, in which special tokens are meant as such."""
    ids = codec.encode_framing(text)
    return Reply(ids=ids, logprobs=[-0.25 * (i % 4) for i in range(len(ids))], **fields)


class PlayedSampler:
    """Samples a fixed list of replies, in memory; keeps the prompts."""

    def __init__(self, replies: Sequence[tuple[int, ...]]) -> None:
        self.replies = list(replies)
        self.prompts: list[tuple[int, ...]] = []

    async def sample(
        self, prompt: tuple[int, ...], *, limit: int, stops: tuple[int, ...], variation: int = 0
    ) -> Sample:
        if not self.replies:
            raise PolicyError("the played replies ran out")
        self.prompts.append(prompt)
        ids = self.replies.pop(0)
        return Sample(ids[:limit], tuple(-0.5 for _ in ids[:limit]), len(ids) > limit, "played")
