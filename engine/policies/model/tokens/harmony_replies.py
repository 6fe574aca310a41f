"""Reading what a model sampled in the harmony format, broken messages included.

One reply in five to ten breaks the format: messages that are not closed, calls without a recipient, JSON cut short,
tools without their namespace. openai-harmony's parser gives such a reply up; here it is cut at special tokens and each
piece is read for what it can only mean. Whatever was mended is said, so that it can be counted and told to the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from thresher.engine.policies.model.reading.lenient import read_value
from thresher.engine.policies.model.reading.recovery import Written, as_call, repair_calls
from thresher.engine.policies.model.tokens.harmony import PARALLEL, HarmonyFormat
from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policies.model.tokens.replies import (
    FinalCall,
    Part,
    Reply,
    assemble,
    cuts_at,
    meant_tool,
)
from thresher.engine.policy import ToolSpec, ToolUse
from thresher.engine.tokenizers import valid_unicode
from thresher.engine.trajectory import canonical_arguments

_RECIPIENT = re.compile(r"\bto=\s*([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ROLE = re.compile(r"<\|start\|>\s*([^\s<]*)")
_ASSISTANT = re.compile(r"<\|start\|>assistant")
_NOBODY = frozenset({"assistant", "user", "all", "functions", ""})
_WRAPPERS = frozenset({PARALLEL, "parallel", "multi_tool_use"})
_TOOL_USES = re.compile(r"""['"]?tool_uses['"]?\s*:\s*\[""")


@dataclass(frozen=True, slots=True)
class Piece:
    """One message as sampled. `start` is the index in `ids` at which its content begins."""

    ids: Ids
    header: str
    start: int
    text: str
    closed: bool

    @property
    def recipient(self) -> str | None:
        """The tool it goes to."""
        found = _RECIPIENT.search(self.header)
        return None if found is None or found[1] in _NOBODY else found[1]

    @property
    def channel(self) -> str:
        """The last channel that its header names, "" for none."""
        found = _CHANNEL.findall(self.header)
        return found[-1] if found else ""

    @property
    def role(self) -> str:
        """Who it says it is from."""
        found = _ROLE.search(self.header)
        name = found[1].partition("to=")[0] if found else ""
        return "assistant" if name.startswith("assistant") or not name else name

    @property
    def typed(self) -> bool:
        """Whether its header says that the content is of a certain type, as those of calls do."""
        return "<|constrain|>" in self.header


def read_reply(
    layout: HarmonyFormat,
    output: Sequence[int],
    tools: Sequence[ToolSpec],
    *,
    cut: bool = False,
    final_call: FinalCall | None = None,
) -> Reply:
    """Take apart what was sampled behind `layout.generation`.

    Args:
        cut: the reply ended at a token limit.
        final_call: reads a final text that ends the search, where the profile has such.
    """
    if not output:
        return Reply("", (), (), ("the reply was empty",))
    faults: list[str] = []
    parts: list[Part] = []
    pieces = _pieces(layout, output)
    if not pieces[-1].closed:
        pieces[-1] = replace(pieces[-1], ids=(*pieces[-1].ids, layout.end))
    for piece in pieces:
        last = piece is pieces[-1]
        if not piece.closed and not last:
            faults.append("a message was not closed")
        half = cut and last and not piece.closed
        parts.append(_part(layout, piece, tools, faults, cut=half, final_call=final_call))
    if not pieces[-1].closed and not faults:
        faults.append("the reply reached its length limit" if cut else "the last message was not closed")
    return assemble(parts, faults)


def _pieces(layout: HarmonyFormat, output: Sequence[int]) -> list[Piece]:
    """Cut a reply into messages: behind each closing token, before each `<|start|>`, and before a channel that is
    named when a message has its content already."""
    ids = [*layout.generation, *output]
    edges = [0]
    has_content = False
    for place, token in enumerate(ids):
        fresh = edges[-1] == place
        if not fresh and (token == layout.start or (token == layout.channel and has_content)):
            edges.append(place)
            has_content = False
        if token in layout.endings:
            edges.append(place + 1)
            has_content = False
        has_content = has_content or token == layout.message
    edges += [len(ids)] if edges[-1] != len(ids) else []
    return [_piece(layout, tuple(ids[a:b])) for a, b in pairwise(edges)]


def _piece(layout: HarmonyFormat, ids: Ids) -> Piece:
    closed = ids[-1] in layout.endings
    stop = len(ids) - closed
    if layout.message in ids[:stop]:
        start = ids.index(layout.message) + 1
        return Piece(ids, layout.codec.decode(ids[: start - 1]), start, layout.codec.decode(ids[start:stop]), closed)
    # No <|message|>: a header alone, or content that runs on behind one.
    whole = layout.codec.decode(ids[:stop])
    begins = min((at for bracket in "{[" if (at := whole.find(bracket)) >= 0), default=-1)
    if "<|channel|>" not in whole and "to=" not in whole:
        header = _ASSISTANT.match(whole)
        begins = header.end() if header else begins
    if begins < 0:
        return Piece(ids, whole, stop, "", closed)
    return Piece(ids, whole[:begins], -1, whole[begins:], closed)


def _part(
    layout: HarmonyFormat,
    piece: Piece,
    tools: Sequence[ToolSpec],
    faults: list[str],
    *,
    cut: bool,
    final_call: FinalCall | None,
) -> Part:
    """What one message is, with its ids."""
    if piece.role != "assistant":
        faults.append(f"a message was written in the name of {piece.role[:40]!r}, which was not believed")
        return Part(piece.ids)
    name = piece.recipient
    if name is not None:
        if piece.start < 0:
            faults.append(f"the call of {_plain(name)} had no message token")
        if _plain(name) in _WRAPPERS:
            return _parallel(layout, piece, tools, faults, cut=cut)
        return _calls(piece, [Written(_plain(name), piece.text)], tools, faults, cut=cut)
    if piece.channel != "analysis" or piece.typed:
        recovered = _unaddressed(layout, piece, tools, faults, cut=cut)
        if recovered is not None:
            return recovered
    if piece.channel in ("final", ""):
        arguments = final_call(piece.text) if final_call is not None else None
        if arguments is not None:
            return Part(piece.ids, uses=(ToolUse("finish", canonical_arguments(arguments)),))
        if piece.channel == "" and piece.text:
            faults.append("a message named no channel")
        return Part(piece.ids, piece.text, final=True)
    return Part(piece.ids, piece.text)


def _calls(
    piece: Piece, written: Sequence[Written], tools: Sequence[ToolSpec], faults: list[str], *, cut: bool
) -> Part:
    repaired = repair_calls(written, tools, cut=cut)
    faults += repaired.faults
    uses = tuple(ToolUse(use.name, valid_unicode(str(use.arguments))) for use in repaired.calls)
    return Part(piece.ids, uses=uses)


def _unaddressed(
    layout: HarmonyFormat, piece: Piece, tools: Sequence[ToolSpec], faults: list[str], *, cut: bool
) -> Part | None:
    """A message without a recipient that is a call all the same; None if it is not, or could be more than one."""
    text = piece.text.strip()
    if not text.startswith("{"):
        return None
    if _TOOL_USES.match(text[1:].lstrip()):
        faults.append("calls had no recipient")
        return _parallel(layout, piece, tools, faults, cut=cut)
    read = read_value(text)
    if read is None or read.open or text[read.end :].strip():
        return None
    named = as_call(read.value)
    if named is not None:
        faults.append(f"the call of {_plain(str(named.name))} had no recipient")
        return _calls(piece, [Written(_plain(str(named.name)), named.arguments)], tools, faults, cut=cut)
    meant = meant_tool(read.value, tools)
    if meant is None:
        return None
    faults.append(f"a call had no recipient and was taken for {meant}, the only tool with such arguments")
    return _calls(piece, [Written(meant, text)], tools, faults, cut=cut)


def _parallel(layout: HarmonyFormat, piece: Piece, tools: Sequence[ToolSpec], faults: list[str], *, cut: bool) -> Part:
    """The calls inside a `multi_tool_use.parallel` wrapper, each with its stretch of the wrapper's tokens."""
    text = piece.text
    opening = _TOOL_USES.search(text)
    at = opening.end() if opening else text.find("[") + 1
    uses: list[ToolUse] = []
    ends: list[int] = []
    whole = True
    while True:
        at = len(text) - len(text[at:].lstrip(" \t\r\n,"))
        read = read_value(text, at) if text[at : at + 1] not in ("", "]") else None
        if read is None or read.open:
            whole = text[at : at + 1] == "]"
            break
        at = read.end
        named = as_call(read.value)
        if named is None:
            faults.append(f"a call inside {PARALLEL} named no tool and was left out")
            continue
        if read.repairs:
            faults.append(f"the arguments of {_plain(str(named.name))} were mended ({', '.join(read.repairs)})")
        arguments = named.arguments if isinstance(named.arguments, str) else canonical_arguments(named.arguments)
        (use,) = _calls(piece, [Written(_plain(str(named.name)), arguments)], tools, faults, cut=False).uses
        uses.append(use)
        ends.append(read.end)
    if not whole:
        kept = f"{len(uses)} of its calls were read" if uses else "none of its calls could be read"
        faults.append(f"{PARALLEL} {'was cut short' if cut else 'held broken JSON'}, {kept}")
    if not uses:
        return Part(piece.ids, uses=() if cut else (ToolUse(PARALLEL, valid_unicode(text)),))
    return Part(piece.ids, uses=tuple(uses), cuts=cuts_at(layout.codec, piece.ids, max(piece.start, 0), ends[:-1]))


def _plain(name: str) -> str:
    """A tool's name without its namespace."""
    while name.startswith("functions."):
        name = name.removeprefix("functions.")
    return name
