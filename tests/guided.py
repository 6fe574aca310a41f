"""Grammars for a server with guided decoding: a weak model then writes calls, and chooses what is left open.

Nothing of a reply is made up: the server samples each token from the model, among those that the grammar allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

WORDS = '"[A-Za-z][A-Za-z0-9 ]{2,40}"'
"""A JSON string of plain words."""
SUFFICIENT = '"sufficient": (true|false)'


def a_call(name: str, arguments: str) -> str:
    """A call in the form of the Hermes models. `arguments` is a pattern for what stands between the braces."""
    return f'<tool_call>\\n\\{{"name": "{re.escape(name)}", "arguments": \\{{{arguments}\\}}\\}}\\n</tool_call>'


def a_search(name: str = "search_corpus") -> str:
    """A search for words of the model's choice."""
    return a_call(name, f'"query": {WORDS}')


def a_finish(ids: str = "c[1-2]") -> str:
    """An end with one evidence id of this pattern."""
    return a_call("finish", f'"evidence_ids": \\["{ids}"\\], {SUFFICIENT}')


def a_prune(ids: str) -> str:
    """A prune of one id of this pattern."""
    return a_call("prune_chunks", f'"ids": \\["{ids}"\\]')


def in_turn(*calls: str) -> str:
    """Several calls in one reply."""
    return "\\n".join(calls)


def either(*choices: str) -> str:
    """One of several replies."""
    return "(" + "|".join(choices) + ")"


def guided(pattern: str) -> Mapping[str, Any]:
    """The fields of a request that hold the reply to a regular expression."""
    return {"structured_outputs": {"regex": pattern}}
