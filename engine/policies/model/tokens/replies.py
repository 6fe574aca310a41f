"""What a model's tokens say: thoughts and calls, each with the very ids it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.engine.policies.model.tokens.encoding import Codec, split_point
from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policy import ToolSpec, ToolUse
from thresher.engine.tokenizers import valid_unicode

FinalCall = Callable[[str], Mapping[str, Any] | None]
"""Reads a final text as arguments of `finish`; None if it is none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply taken apart. `reasoning_ids` and the ids of `uses`, in order, are all of it: none is lost or made up,
    but for framing that the prompt had (in front) or that a reply cut short lacks (at its end).

    Attributes:
        final: text meant for the user, in which no call was found.
        faults: what was wrong and was repaired or left out, in words.
    """

    reasoning: str
    reasoning_ids: Ids
    uses: tuple[ToolUse, ...]
    faults: tuple[str, ...] = ()
    final: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a reply: a thought (`uses` empty), or the calls in it.

    `cuts` are the indices into `ids` at which the second and later calls begin; there is one for each.
    """

    ids: Ids
    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    cuts: tuple[int, ...] = ()
    final: bool = False


def assemble(parts: Sequence[Part], faults: Iterable[str]) -> Reply:
    """Thoughts before the first call are the reasoning; a later one goes with the call behind it, or else before."""
    calling = [number for number, part in enumerate(parts) if part.uses]
    first = calling[0] if calling else len(parts)
    words = [part.text.strip() for part in parts if not part.uses and not part.final]
    final = "\n\n".join(part.text for part in parts if part.final and not part.uses).strip()
    reasoning_ids = tuple(i for part in parts[:first] for i in part.ids)
    uses: list[ToolUse] = []
    held: Ids = ()
    for number, part in enumerate(parts[first:], first):
        if not part.uses:
            held += part.ids
            continue
        behind = parts[number + 1 :] if number == calling[-1] else ()
        edges = [0, *part.cuts, len(part.ids)]
        for place, use in enumerate(part.uses):
            ids = part.ids[edges[place] : edges[place + 1]]
            if place == 0:
                ids = held + ids
            if place == len(part.uses) - 1:
                ids += tuple(i for later in behind for i in later.ids)
            uses.append(ToolUse(use.name, use.arguments, ids))
        held = ()
    # Text without ids of its own would be encoded a second time: it stands in a call's.
    shown = [word for word in (*words, final) if word] if reasoning_ids else []
    return Reply(valid_unicode("\n\n".join(shown)), reasoning_ids, tuple(uses), tuple(faults), final)


def meant_tool(value: Any, tools: Sequence[ToolSpec]) -> str | None:
    """The only tool whose arguments an object can be; None if there is none, or more than one."""
    if not isinstance(value, dict) or not value:
        return None
    fitting = [
        tool.name
        for tool in tools
        if set(tool.parameters.get("required", ())) <= set(value) <= set(tool.parameters.get("properties", {}))
    ]
    return fitting[0] if len(fitting) == 1 else None


def cuts_at(codec: Codec, ids: Ids, start: int, offsets: Sequence[int]) -> tuple[int, ...]:
    """Where to cut `ids` so that the text of `ids[start:]` is cut at these character offsets, to the token.

    Every stretch gets at least one token.
    """
    content = ids[start:]
    cuts: list[int] = []
    least = start + 1
    for number, offset in enumerate(offsets):
        most = len(ids) - (len(offsets) - number)
        cuts.append(max(least, min(most, start + split_point(codec, content, offset))))
        least = cuts[-1] + 1
    return tuple(cuts)
