"""A chat door in front of a model that works with tokens, for whoever has only messages: the writing of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thresher.context import BlockDraft, BlockKind, Ledger, Role
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.sampling import Sampler
from thresher.engine.policies.model.tokens.styles import Style

THINKING_TOKENS = 1_024
"""Room for thoughts, beside the words that were asked for."""
_OPENS = {"system": (BlockKind.SYSTEM, Role.SYSTEM), "user": (BlockKind.TASK, Role.USER)}


class TokenDoor:
    """Answers `/chat/completions` of system and user messages by sampling in tokens, without any server's template."""

    def __init__(self, style: Style, sampler: Sampler) -> None:
        self._style = style
        self._sampler = sampler

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion; of `body`, `messages` and `max_tokens` count. Raises `PolicyError` if there is none."""
        renderer = TokenRenderer(self._style.format)
        ledger = Ledger(renderer.counter, renderer)
        for message in body["messages"]:
            kind, role = _OPENS[message["role"]]
            ledger.append(BlockDraft(kind, message["content"], opens=role))
        prompt = renderer.generation_ids(ledger.prompt())
        limit = int(body["max_tokens"]) + THINKING_TOKENS
        sample = await self._sampler.sample(prompt, limit=limit, stops=self._style.stops)
        reply = self._style.read(sample.output, (), cut=sample.cut, final_call=None)
        return {
            "choices": [{"message": {"role": "assistant", "content": reply.final or reply.reasoning}}],
            "usage": {
                "prompt_tokens": sample.usage.prompt_tokens,
                "completion_tokens": sample.usage.completion_tokens,
            },
        }
