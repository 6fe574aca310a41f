"""A turn as a student model would write it: the ids of its thoughts and calls, in its own style, stop token included.

What is written is read back by the very reader that serves the student, and must come out as the same turn: so whatever
is taught can be understood, and the context afterwards is cut into blocks as it will be when the student writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.context import BlockDraft, BlockKind, Call, Role
from thresher.engine.policies.model.tokens.harmony import PARALLEL, HarmonyFormat
from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policies.model.tokens.replies import Reply
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.policy import ToolSpec
from thresher.engine.trajectory import canonical_arguments
from thresher.train.segments.errors import NotWritable

FINISH = "finish"


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A call to be written: the tool's name, and its arguments as JSON text."""

    name: str
    arguments: str

    @property
    def values(self) -> Mapping[str, Any] | None:
        """The arguments; None if they are no JSON object."""
        try:
            values = json.loads(self.arguments) if self.arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) else None


def as_told(call: PlainCall, tools: Sequence[ToolSpec]) -> PlainCall:
    """The call in the words that a student is told of: its tool's own name for what to prune, and no other arguments.

    Policies that know the engine use arguments that a profile does not tell of, and that it takes all the same.
    """
    properties = next((tool.parameters.get("properties", {}) for tool in tools if tool.name == call.name), None)
    values = call.values
    if properties is None or values is None or set(values) <= set(properties):
        return call
    renamed = {_SAME.get(name, name) if name not in properties else name: value for name, value in values.items()}
    return PlainCall(call.name, canonical_arguments({n: v for n, v in renamed.items() if n in properties}))


_SAME = {"ids": "chunk_ids"}
"""Another name of an argument in some profile."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the student is taught to sample, and what it is read as."""

    output_ids: Ids
    reply: Reply


def write_turn(style: Style, reasoning: str, calls: Sequence[PlainCall], tools: Sequence[ToolSpec]) -> Written:
    """The turn in the student's style.

    `tools` are those that the student is told of. Where `finish` is not among them and the style ends with a final
    text, that is what a call of it becomes: it holds the ids and quotes, and says no more than the style can.

    Raises:
        NotWritable: the turn has no call, one that is no JSON object, or is not read back as it was.
    """
    if not calls:
        raise NotWritable("a turn without a call is no example to follow")
    if any(call.values is None for call in calls):
        raise NotWritable("the arguments of a call are no JSON object")
    final = _final_text(style, calls[-1], tools)
    if isinstance(style.format, HarmonyFormat):
        output = _in_harmony(style.format, reasoning, calls, final)
    else:
        output = _in_blocks(style, reasoning, calls, final)
    reply = style.read(output, tools, cut=False, final_call=style.final_call)
    if reply.faults:
        raise NotWritable(f"the student's style reads it with faults: {'; '.join(reply.faults)}")
    if reply.reasoning != reasoning.strip():
        raise NotWritable("its reasoning is not read back as it was written")
    if not _same(reply, calls, final is not None):
        raise NotWritable("its calls are not read back as they were written")
    return Written(output, reply)


def _in_blocks(style: Style, reasoning: str, calls: Sequence[PlainCall], final: str | None) -> Ids:
    """As the format renders the blocks of a turn that nobody sampled, closed by the style's stop token."""
    layout = style.format
    ids = list(layout.body(BlockDraft(BlockKind.REASONING, reasoning, opens=Role.ASSISTANT), reasoning.strip()))
    for call in calls[: len(calls) - (final is not None)]:
        ids += layout.body(BlockDraft(BlockKind.CALL, "", call=Call("", call.name, call.arguments)), "")
    if final is not None:
        ids += layout.codec.encode(f"\n\n{final}" if ids else final)
    return (*ids, style.stops[0])


def _in_harmony(layout: HarmonyFormat, reasoning: str, calls: Sequence[PlainCall], final: str | None) -> Ids:
    """Messages, of which only the last ends with a token that stops sampling.

    Several calls go into one wrapper where the format offers it; else each has its own message, closed by `<|end|>`.
    """
    thought = BlockDraft(BlockKind.REASONING, reasoning, opens=Role.ASSISTANT)
    ids = list(layout.body(thought, reasoning.strip()))
    called = calls[: len(calls) - (final is not None)]
    if layout.parallel and len(called) > 1:
        uses = [{"recipient_name": f"functions.{call.name}", "parameters": call.values} for call in called]
        wrapper = (
            *layout.codec.encode(f" to={PARALLEL}"),
            layout.channel,
            *layout.codec.encode("commentary"),
            *layout.codec.encode(" "),
            layout.constrain,
            *layout.codec.encode("json"),
        )
        text = layout.codec.encode(canonical_arguments({"tool_uses": uses}))
        ids += (*layout.generation, *wrapper, layout.message, *text, layout.call)
    else:
        for call in called:
            body = layout.body(BlockDraft(BlockKind.CALL, "", call=Call("", call.name, call.arguments)), "")
            ids += (*body[:-1], layout.end)
        if called:
            ids[-1] = layout.call
    if final is not None:
        if called:
            ids[-1] = layout.end
        header = (layout.channel, *layout.codec.encode("final"))
        ids += (*layout.generation, *header, layout.message, *layout.codec.encode(final), layout.returned)
    return tuple(ids[len(layout.generation) :])  # the prompt ends with the opening of the turn


def _final_text(style: Style, call: PlainCall, tools: Sequence[ToolSpec]) -> str | None:
    """The final answer that a call of `finish` is in this style; None where it is written as a call."""
    if call.name != FINISH or style.final_call is None or any(tool.name == FINISH for tool in tools):
        return None
    values = call.values or {}
    ids, quotes, why = values.get("evidence_ids") or [], values.get("quotes") or {}, values.get("justification") or ""
    lines = []
    for number, evidence_id in enumerate(ids):
        said = " ".join(str(quotes.get(evidence_id) or (why if number == 0 else "")).split())
        reason = f"<Justification>{said}</Justification>" if said and "<" not in said else ""
        lines.append(f'<Document id="{evidence_id}">{reason}</Document>')
    return "\n".join(lines)


def _same(reply: Reply, calls: Sequence[PlainCall], final: bool) -> bool:
    read = [PlainCall(use.name, str(use.arguments)) for use in reply.uses]
    if [call.name for call in read] != [call.name for call in calls]:
        return False
    pairs = list(zip(read, calls, strict=True))
    if final:
        mine, asked = (call.values or {} for call in pairs.pop())
        if mine.get("evidence_ids") != asked.get("evidence_ids"):
            return False
    return all(mine.values == asked.values for mine, asked in pairs)
