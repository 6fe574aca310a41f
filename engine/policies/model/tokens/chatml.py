"""ChatML as Qwen, SmolLM and their kin read it, as token ids, with calls in the Hermes form.

    <|im_start|>assistant
    some thought
    <tool_call>
    {"name": "search_corpus", "arguments": {"query": "…"}}
    </tool_call><|im_end|>

The frame of a turn belongs to its reasoning block, which stands as long as a call does; what the model sampled between
is taken over id by id. Observations are user messages that hold a `<tool_response>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from thresher.context import BlockDraft, BlockKind, Role
from thresher.engine.policies.model.reading.recovery import repair_calls
from thresher.engine.policies.model.reading.text_calls import Spotted, spot_calls
from thresher.engine.policies.model.tokens.encoding import Codec, split_point
from thresher.engine.policies.model.tokens.rendering import Ids, role_of, told_functions
from thresher.engine.policies.model.tokens.replies import FinalCall, Part, Reply, assemble, cuts_at
from thresher.engine.policy import ToolSpec, ToolUse
from thresher.engine.tokenizers import valid_unicode
from thresher.engine.trajectory import canonical_arguments

_TOOLS = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class ChatMLFormat:
    """Frames messages as ChatML does, in the vocabulary of the model's own folder."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.end = codec.special("<|im_end|>")
        codec.special("<|im_start|>")
        self.stops: Ids = (self.end, *_end_of_text(codec))
        """Where sampling stops. Models that were trained little on chats end with the end of a text."""
        self.generation: Ids = codec.encode_framing("<|im_start|>assistant\n")
        self._heads = {
            Role.SYSTEM: codec.encode_framing("<|im_start|>system\n"),
            Role.USER: codec.encode_framing("<|im_start|>user\n"),
            Role.TOOL: codec.encode_framing("<|im_start|>user\n<tool_response>\n"),
            Role.ASSISTANT: self.generation,
        }
        self._tail = codec.encode_framing("<|im_end|>\n")
        self._observed = codec.encode_framing("</tool_response><|im_end|>\n")

    def open(self, draft: BlockDraft) -> Ids:
        """What stands before a message."""
        return self._heads[role_of(draft)]

    def close(self, draft: BlockDraft) -> Ids:
        """What stands behind it."""
        return self._observed if draft.opens is Role.TOOL else self._tail

    def body(self, draft: BlockDraft, piece: str) -> Ids:
        """The ids of a block that nobody sampled."""
        if draft.kind is BlockKind.SYSTEM:
            return self.codec.encode(piece.rstrip("\n"))
        if draft.kind is BlockKind.TOOLS:
            specs = [{"type": "function", "function": function} for function in told_functions(piece)]
            lines = "\n".join(json.dumps(spec, ensure_ascii=False) for spec in specs)
            return self.codec.encode_framing(_TOOLS.format(tools=lines)) if lines else ()
        if draft.kind is BlockKind.CALL:
            assert draft.call is not None
            name = json.dumps(draft.call.name, ensure_ascii=False)
            inner = self.codec.encode(f'{{"name": {name}, "arguments": {draft.call.arguments or "{}"}}}')
            opening = self.codec.encode_framing("\n<tool_call>\n")
            return (*opening, *inner, *self.codec.encode_framing("\n</tool_call>"))
        return self.codec.encode(piece)

    def joined(self, draft: BlockDraft) -> bool:
        """Never: whatever calls a turn keeps, they stand in its frame."""
        return False

    def read(
        self,
        output: Sequence[int],
        tools: Sequence[ToolSpec],
        *,
        cut: bool = False,
        final_call: FinalCall | None = None,
    ) -> Reply:
        """Take a reply apart; see `thresher.engine.policies.model.tokens.replies`.

        The closing `<|im_end|>` is left out of the ids, because the frame brings the same one.
        """
        ids = tuple(output)
        closed = ids[-1:] == (self.end,)
        ids = ids[:-1] if closed else ids
        faults: list[str] = []
        # An end of text stays among the ids, for the frame does not bring it; it is no word.
        text = self.codec.decode(ids[:-1] if ids[-1:] in [(stop,) for stop in self.stops] else ids)
        if not text.strip():
            return Reply("", ids, (), ("the reply was empty",))
        parts = self._tagged(text, ids, tools, faults, cut=cut and not closed)
        if not any(part.uses for part in parts):
            arguments = final_call(_THOUGHT.sub("", text)) if final_call is not None else None
            use = (ToolUse("finish", canonical_arguments(arguments)),) if arguments is not None else ()
            parts = [Part(ids, uses=use)] if use else self._untagged(text, ids, tools, faults, cut=cut and not closed)
        if cut and not closed and not faults:
            faults.append("the reply reached its length limit")
        reply = assemble(parts, faults)
        final = "" if reply.uses else _THOUGHT.sub("", text).strip()
        return replace(reply, final=valid_unicode(final))

    def _tagged(self, text: str, ids: Ids, tools: Sequence[ToolSpec], faults: list[str], *, cut: bool) -> list[Part]:
        """The parts of a reply that marks its calls, cut at the marks."""
        marks = [match for match in _CALL.finditer(text) if not _inside_thought(text, match.start())]
        edges = [0, *(split_point(self.codec, ids, mark.start()) for mark in marks), len(ids)]
        thought = text[: marks[0].start()] if marks else text
        parts = [Part(ids[: edges[1]], thought)] if edges[1] else []
        for mark, (start, end) in zip(marks, pairwise(edges[1:]), strict=True):
            half = cut and mark is marks[-1] and not mark[0].endswith("</tool_call>")
            spotted = spot_calls(mark[0], tools, cut=half)
            repaired = repair_calls(spotted.calls, tools, cut=half)
            faults += (*_mended(spotted), *repaired.faults)
            if not (repaired.calls or repaired.faults or spotted.half):
                faults.append("a tool_call held no call that could be read")
            parts.append(self._part(ids[start:end], mark[0], repaired.calls))
        return parts

    def _untagged(self, text: str, ids: Ids, tools: Sequence[ToolSpec], faults: list[str], *, cut: bool) -> list[Part]:
        """A reply in which calls stand without the marks that it was told to set."""
        spotted = spot_calls(_THOUGHT.sub("", text), tools, cut=cut)
        repaired = repair_calls(spotted.calls, tools, cut=cut)
        faults += (*_mended(spotted), *repaired.faults)
        if not repaired.calls:
            return [Part(ids, text)]
        faults.append("calls stood outside of tool_call tags")
        begins = [text.find(use.name) for use in repaired.calls[:1]]
        start = split_point(self.codec, ids, max(0, text.rfind("\n", 0, max(begins[0], 0)) + 1))
        start = min(start, len(ids) - len(repaired.calls))
        parts = [Part(ids[:start], text[: len(self.codec.decode(ids[:start]))])] if start > 0 else []
        return [*parts, self._part(ids[max(start, 0) :], text, repaired.calls)]

    def _part(self, ids: Ids, text: str, uses: Sequence[ToolUse]) -> Part:
        """Calls that share a stretch are given it in shares, each where its name stands, as well as that is known."""
        calls = tuple(ToolUse(use.name, valid_unicode(str(use.arguments))) for use in uses)
        offsets: list[int] = []
        at = 0
        whole = self.codec.decode(ids)
        for use in calls[1:]:
            at = max(whole.find(use.name, at + 1), at)
            offsets.append(at)
        return Part(ids, "" if calls else text, calls, cuts_at(self.codec, ids, 0, offsets))


def _end_of_text(codec: Codec) -> Ids:
    ids = codec.encode_framing("<|endoftext|>")
    return ids if len(ids) == 1 else ()


def _mended(spotted: Spotted) -> tuple[str, ...]:
    return (f"the JSON of a call was mended ({', '.join(spotted.repairs)})",) if spotted.repairs else ()


def _inside_thought(text: str, at: int) -> bool:
    return any(match.start() < at < match.end() for match in _THOUGHT.finditer(text))
