"""When a prompt is longer than a server's context, although it fits the engine's budget.

The engine counts a chat with its own tokenizer and the server with another, or the server was started with a shorter
context than the budget. That must not end a search: the reply is made shorter, or old chunks are pruned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from thresher.engine.errors import ModelRefused
from thresher.engine.policy import ToolUse, View

PRUNE = "prune_chunks"
MIN_REPLY_TOKENS = 64
"""With less room than this, a shorter reply is of no use."""
MARGIN_TOKENS = 16
SLACK = 1.1
_OVERFLOW = re.compile(
    r"context.length|context.size|context.window|max_model_len|n_ctx|too many tokens|prompt is too long"
    r"|max_(?:completion_)?tokens.{0,40}too large"
)
_REPLY = re.compile(r"max_(?:completion_)?tokens.{0,20}(?:too large|cannot be greater|must be at most)")
_REQUESTED = re.compile(r"requested \d[\d,]* output tokens")
_LIMIT = re.compile(r"(?:context (?:length|size|window)|max_model_len|n_ctx|maximum|limit)[^\d]{0,24}(\d[\d,]*)")
_PROMPT = re.compile(
    r"(\d[\d,]*) (?:tokens )?(?:in the (?:messages|prompt|input)|of text input)|(\d[\d,]*) (?:input|prompt) tokens"
    r"|(?:resulted in|contains(?: at least)?|prompt is too long:|request \() ?(\d[\d,]*)"
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A refusal for want of room: tokens of the server's context and of the prompt as it counts; None if not said.

    `reply`: it is the length of the reply that it refused, whatever the prompt's. `at_least`: as far as it counted the
    prompt, where it stopped counting.
    """

    limit: int | None
    prompt: int | None
    reply: bool = False
    at_least: int = 0

    def shorter_reply(self, asked: int, counted: int | None = None) -> int | None:
        """The longest reply that fits, if that helps. `counted`: tokens of the prompt as the engine counts."""
        prompt, most = self.prompt, asked - 1
        if prompt is None and self.reply and counted is not None:
            # The server may count more than the engine: so that it is not asked thousands of times, halves at most.
            prompt, most = max(counted, self.at_least), asked // 2
        if self.limit is None or prompt is None:
            return None
        room = min(most, self.limit - prompt - MARGIN_TOKENS)
        return room if room >= MIN_REPLY_TOKENS else None

    def prune(self, view: View, reply: int) -> ToolUse | None:
        """A call that prunes the oldest chunks, as many as must go; None if none can."""
        tool = next((tool for tool in view.tools if tool.name == PRUNE), None)
        if tool is None or not view.live:
            return None
        total = sum(view.live_tokens.values())
        excess = total // 2
        if self.limit is not None and self.prompt is not None:
            # In the server's tokens, of which the engine may count more; a little more saves another turn like this.
            scale = max(1.0, view.prompt.tokens / max(1, self.prompt)) * SLACK
            excess = round(max(0, self.prompt + reply + MARGIN_TOKENS - self.limit) * scale)
        ids: list[str] = []
        freed = 0
        for evidence in view.live:
            if ids and freed >= excess:
                break
            ids.append(evidence.id)
            freed += view.live_tokens[evidence.id]
        return ToolUse(PRUNE, {next(iter(tool.parameters["properties"])): ids})


def read_overflow(refused: ModelRefused) -> Overflow | None:
    """Whether a server refused for want of room, and what it says about it."""
    said = refused.reason.lower()
    if refused.status in (401, 403, 404, 429) or not _OVERFLOW.search(said):
        return None
    limit, prompt = _LIMIT.search(said), _PROMPT.search(said)
    counted = int(next(group for group in prompt.groups() if group).replace(",", "")) if prompt else None
    stopped = "at least" in said  # the server stopped counting there
    return Overflow(
        limit=int(limit[1].replace(",", "")) if limit else None,
        prompt=None if stopped else counted,
        reply=_REPLY.search(said) is not None or (stopped and _REQUESTED.search(said) is not None),
        at_least=counted or 0,
    )
