"""Counting tokens: the ledger counts with the policy's own tokenizer, whatever that is."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """Counts the tokens of text.

    A prompt is encoded piece by piece, one piece a block, so lengths add up exactly: no token spans two blocks.
    """

    @property
    def message_overhead(self) -> int:
        """Tokens that the chat format spends on opening and closing one message, or one call in it."""

    def count(self, text: str) -> int:
        """Number of tokens of `text` encoded by itself."""
