"""Reading a verdict, strictly: what is not plainly one is none.

A judge may repeat what it was shown, and what it was shown may hold a verdict that was written for it. So a verdict
counts only if it carries the code of this request, decides all that was asked in the words that were offered, and no
other with the same code says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.engine.policies.model.reading.objects import json_objects
from thresher.engine.policies.model.reading.thoughts import split_thoughts

_WHY_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge decided, by key, and why it says so."""

    verdicts: Mapping[str, str]
    why: str = ""


def read_verdict(reply: str, code: str, choices: Mapping[str, Sequence[str]]) -> Verdict | None:
    """The verdict in a reply, with whatever stands around it; None if it holds none, or two that differ."""
    found: Verdict | None = None
    for value in json_objects(split_thoughts(reply)[1], _STRICT):
        if value.get("code") != code:
            continue
        verdict = _verdict(value, choices)
        if verdict is None or (found is not None and found.verdicts != verdict.verdicts):
            return None
        found = verdict
    return found


def _verdict(value: Mapping[str, Any], choices: Mapping[str, Sequence[str]]) -> Verdict | None:
    given = value.get("verdicts")
    if not isinstance(given, dict) or set(given) != set(choices):
        return None
    decided = {key: word.strip().lower() if isinstance(word, str) else "" for key, word in given.items()}
    if any(word not in choices[key] for key, word in decided.items()):
        return None
    why = value.get("why")
    return Verdict(decided, why[:_WHY_CHARACTERS] if isinstance(why, str) else "")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


_STRICT = json.JSONDecoder(object_pairs_hook=_once)
