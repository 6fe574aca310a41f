"""JSON objects in what a model says, whatever stands around them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

TRIES = 256
"""How many brackets of a reply are tried as the start of an object."""


def json_objects(text: str, decoder: json.JSONDecoder | None = None) -> Iterator[dict[str, Any]]:
    """Objects of a text that stand in no other, in order; what `decoder` refuses is passed over."""
    decoder = decoder or json.JSONDecoder()
    at = text.find("{")
    for _ in range(TRIES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)
