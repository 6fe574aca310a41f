"""How strings and scalars are stored, the same on the way in and in every look-up."""

from __future__ import annotations

import re

Scalar = str | int | float | bool

# SQLite's C string functions (its trigram tokenizer among them) stop at NUL, and UTF-8 has no lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"

_INT64 = 2**63


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD; as long as before, so offsets stay valid."""
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def typed_value(value: Scalar) -> tuple[str, str | int | float]:
    """(kind, value) as SQLite compares it: `s` text, `n` number, `b` boolean."""
    if isinstance(value, bool):
        return "b", int(value)
    if isinstance(value, str):
        return "s", storable(value)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        try:
            return "n", float(value)
        except OverflowError:
            return "n", float("inf") if value > 0 else float("-inf")
    return "n", value
