"""The harmony format of gpt-oss and Context-1, as token ids.

What openai-harmony renders, block by block: a system message, a developer message with the instructions and the tools
as TypeScript, the question, and then turns. It is not asked to render conversations, because it would encode again what
the model sampled and drops past reasoning; a model that edits its own context must find there what it wrote.

A turn of the model is whole harmony messages: its reasoning block holds those without a call, each call block one with
its call, from `<|start|>` to `<|end|>` or `<|call|>`. So any of them can be removed and the rest stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thresher.context import BlockDraft, BlockKind, Role
from thresher.engine.policies.model.tokens.encoding import HarmonyCodec, harmony_codec
from thresher.engine.policies.model.tokens.rendering import Ids, plain_name, role_of, told_functions

PARALLEL = "multi_tool_use.parallel"
_PARALLEL_TOOL: dict[str, Any] = {
    "name": "parallel",
    "description": "Run several tools of the functions namespace at the same time.",
    "parameters": {
        "type": "object",
        "properties": {
            "tool_uses": {
                "type": "array",
                "description": "The tools to run, e.g. {recipient_name: 'functions.search_corpus', parameters: {…}}.",
                "items": {
                    "type": "object",
                    "properties": {"recipient_name": {"type": "string"}, "parameters": {"type": "object"}},
                    "required": ["recipient_name", "parameters"],
                },
            }
        },
        "required": ["tool_uses"],
    },
}


class HarmonyFormat:
    """Frames messages as harmony does.

    Args:
        parallel: offer the `multi_tool_use.parallel` wrapper, by which Context-1 makes several calls in a turn.
        reasoning_effort: `low`, `medium` or `high`.
        identity: the first sentence of the system message.
    """

    def __init__(
        self,
        codec: HarmonyCodec | None = None,
        *,
        parallel: bool = True,
        reasoning_effort: str = "medium",
        identity: str = "You are ChatGPT, a large language model trained by OpenAI.",
    ) -> None:
        from openai_harmony import ReasoningEffort, SystemContent
        from openai_harmony import Role as HarmonyRole

        self.codec = codec or harmony_codec()
        self.parallel = parallel
        self.start = self.codec.special("<|start|>")
        self.message = self.codec.special("<|message|>")
        self.channel = self.codec.special("<|channel|>")
        self.constrain = self.codec.special("<|constrain|>")
        self.end = self.codec.special("<|end|>")
        self.call = self.codec.special("<|call|>")
        self.returned = self.codec.special("<|return|>")
        self.endings = frozenset({self.end, self.call, self.returned})
        self.stops: Ids = (self.returned, self.call)
        """Where sampling stops. `<|end|>` closes one message of several, so the model goes on behind it."""
        content = SystemContent(
            model_identity=identity, reasoning_effort=ReasoningEffort(reasoning_effort.capitalize())
        )
        system = self._library_message(HarmonyRole.SYSTEM, content, has_tools=True)
        self._opening: Ids = (*system, self.start, *self.codec.encode("developer"), self.message)
        self.generation: Ids = (self.start, *self.codec.encode("assistant"))

    def open(self, draft: BlockDraft) -> Ids:
        """What stands before a message; nothing before the model's own, which bring their headers."""
        role = role_of(draft)
        if role is Role.SYSTEM:
            return self._opening
        if role is Role.USER:
            return (self.start, *self.codec.encode("user"), self.message)
        if role is Role.TOOL:
            name = draft.call.name if draft.call else "unknown"
            header = self.codec.encode(f"functions.{plain_name(name)} to=assistant")
            return (self.start, *header, self.channel, *self.codec.encode("commentary"), self.message)
        return ()

    def close(self, draft: BlockDraft) -> Ids:
        """`<|end|>`; nothing behind the model's own."""
        return () if draft.opens is Role.ASSISTANT else (self.end,)

    def body(self, draft: BlockDraft, piece: str) -> Ids:
        """The ids of a block that nobody sampled."""
        if draft.kind is BlockKind.SYSTEM:
            return self.codec.encode(f"# Instructions\n\n{piece}\n\n")
        if draft.kind is BlockKind.TOOLS:
            return self._tools(told_functions(piece))
        if draft.kind is BlockKind.REASONING:
            return self._assistant(self._channel("analysis"), piece, self.end) if piece else ()
        if draft.kind is BlockKind.CALL:
            assert draft.call is not None
            header = (
                *self.codec.encode(f" to=functions.{plain_name(draft.call.name)}"),
                *self._channel("commentary"),
                *self.codec.encode(" "),
                self.constrain,
                *self.codec.encode("json"),
            )
            return self._assistant(header, draft.call.arguments, self.call)
        return self.codec.encode(piece)

    def joined(self, draft: BlockDraft) -> bool:
        """Whether these ids go on within the message of the call before."""
        return draft.ids[0] != self.start

    def _channel(self, name: str) -> Ids:
        return (self.channel, *self.codec.encode(name))

    def _assistant(self, header: Ids, text: str, ending: int) -> Ids:
        return (*self.generation, *header, self.message, *self.codec.encode(text), ending)

    def _tools(self, functions: Sequence[Mapping[str, Any]]) -> Ids:
        """The tools section of the developer message, as openai-harmony writes it."""
        from openai_harmony import DeveloperContent, ToolDescription, ToolNamespaceConfig
        from openai_harmony import Role as HarmonyRole

        if not functions:
            return ()
        content = DeveloperContent().with_function_tools(
            [ToolDescription.new(f["name"], f["description"], f["parameters"]) for f in functions]
        )
        if self.parallel:
            content = content.with_tools(
                ToolNamespaceConfig(name="multi_tool_use", tools=[ToolDescription(**_PARALLEL_TOOL)])
            )
        rendered = self._library_message(HarmonyRole.DEVELOPER, content)
        return rendered[rendered.index(self.message) + 1 : -1]

    def _library_message(self, role: Any, content: Any, *, has_tools: bool = False) -> Ids:
        from openai_harmony import Message, RenderOptions

        message = Message.from_role_and_content(role, content)
        return tuple(self.codec.harmony.render(message, RenderOptions(conversation_has_function_tools=has_tools)))
