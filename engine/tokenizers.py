"""Token counters that the engine hands to ledgers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def valid_unicode(text: str) -> str:
    """`text` with lone surrogates replaced: they can be neither counted, sent to a model nor written to a trace."""
    return text.encode("utf-8", "replace").decode("utf-8")


_REMEMBERED = 8_192
"""Texts whose count is kept: about 10 MB of passages."""


class O200kCounter:
    """Counts in o200k_base, the base vocabulary of gpt-oss and Context-1.

    Its numbers are those models' own for text. Policies without a tokenizer (`builtin`, `scripted`) are measured
    with it too, so that their context sizes compare with a 20B model's.
    """

    message_overhead = 4  # harmony: <|start|>, role, <|message|>, <|end|>

    def __init__(self) -> None:
        import bpe_openai

        self._encoding: Any = bpe_openai.get_encoding("o200k_base")
        # A passage is counted when it is sized, framed and shown, and again whenever a query finds it.
        self._remembered = lru_cache(_REMEMBERED)(self._count)

    def count(self, text: str) -> int:
        """Number of o200k_base tokens; text that looks like a special token counts as plain text."""
        return self._remembered(text)

    def count_once(self, text: str) -> int:
        """The same, not remembered: for texts too long to keep."""
        return self._count(text)

    def _count(self, text: str) -> int:
        try:
            return len(self._encoding.encode_ordinary(text))
        except UnicodeEncodeError:
            return len(self._encoding.encode_ordinary(valid_unicode(text)))


@lru_cache(maxsize=1)
def default_counter() -> O200kCounter:
    """The shared o200k counter; loading its ranks takes about 0.2 s, once a process."""
    return O200kCounter()
