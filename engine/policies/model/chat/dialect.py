"""What one chat server takes, learnt from what it refused: fields, tools, roles, ids, the length of its context."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from thresher.context import Prompt
from thresher.context.render import Message
from thresher.engine.errors import ModelRefused
from thresher.engine.policies.model.reading.thoughts import split_thoughts
from thresher.engine.policies.model.settings import ModelSettings

TOOLS_AS_TEXT = """

# Tools

You can call these functions. Their signatures are JSON schemas:
<tools>
{tools}
</tools>

To call one, write a JSON object inside these tags. You may write several calls, one after another:
<tool_call>
{{"name": "<function name>", "arguments": <arguments as a JSON object>}}
</tool_call>
Results come back inside <tool_response> tags."""
_OPTIONAL = ("parallel_tool_calls", "stream_options", "temperature", "top_p", "seed", "tool_choice")
_REFUSING = re.compile(
    r"unsupported|not support|n't support|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|forbidden|invalid"
    r"|not allowed|require"
)

REASONING = "reasoning"
"""In `left_out`: thoughts are not sent back."""
SILENCE = "(nothing)"
"""What stands in for an empty message, where a server takes none."""


class Tools(StrEnum):
    """How tools are told to a model, best first."""

    NATIVE = "native"
    UNPARSED = "unparsed"
    """The server's template writes them, but calls come back as text."""
    TEXT = "text"
    """They stand in the system message, and results in the user's."""


@dataclass(slots=True)
class Dialect:
    """How to talk to one server; shared by its searches, so that each thing is refused once."""

    settings: ModelSettings
    tools: Tools = Tools.NATIVE
    limit_field: str = "max_tokens"
    left_out: set[str] = field(default_factory=set)
    reasoning_field: str | None = None
    short_ids: bool = False
    system_role: bool = True
    empty_messages: bool = True

    @classmethod
    def of(cls, settings: ModelSettings) -> Dialect:
        """What is known before anything was asked."""
        hosted = (urlsplit(settings.url or "").hostname or "").endswith("openai.com")
        return cls(settings, Tools(settings.tools), "max_completion_tokens" if hosted else "max_tokens")

    def body(self, prompt: Prompt, *, limit: int, stream: bool, seed: int | None = None) -> dict[str, Any]:
        """A request for the next reply to `prompt`, of at most `limit` tokens."""
        settings = self.settings
        body: dict[str, Any] = {"model": settings.model, "messages": self.messages(prompt), self.limit_field: limit}
        if self.tools is not Tools.TEXT and prompt.tools:
            body["tools"] = prompt.tools
            body["tool_choice"] = settings.tool_choice if self.tools is Tools.NATIVE else "none"
            body["parallel_tool_calls"] = True
        wanted = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": seed}
        body |= {name: value for name, value in wanted.items() if value is not None}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {**self.adapted(body), **settings.extra}

    def adapted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request without the fields that this server does not take, and with the limit where it wants it."""
        other = "max_completion_tokens" if self.limit_field == "max_tokens" else "max_tokens"
        made = {self.limit_field if name == other else name: value for name, value in body.items()}
        return {name: value for name, value in made.items() if name not in self.left_out}

    def messages(self, prompt: Prompt) -> Sequence[Message]:
        """The messages as this server takes them."""
        messages: Iterable[Message] = prompt.messages
        if self.tools is Tools.TEXT:
            messages = _as_text(messages, prompt.tools)
        elif self.reasoning_field is not None or REASONING in self.left_out:
            messages = [_with_reasoning(message, self.reasoning_field) for message in messages]
        if self.short_ids:
            messages = [_with_short_ids(message) for message in messages]
        if not self.empty_messages:
            messages = [m if m.get("content") or m.get("tool_calls") else {**m, "content": SILENCE} for m in messages]
        if not self.system_role:
            messages = _without_system(list(messages))
        return tuple(messages)

    def learn(self, refused: ModelRefused, body: Mapping[str, Any]) -> str | None:
        """What to do otherwise next time, from the server's own words, as a sentence; None if they teach nothing.

        What counts is what was in `body`: another search may have learnt the same meanwhile.
        """
        said = refused.reason.lower()
        if refused.status in (401, 403, 413, 429) or not said:
            return None
        if "auto-tool-choice" in said or "tool-call-parser" in said:
            return self._without_tools(said, body)
        other = "max_completion_tokens" if "max_tokens" in body else "max_tokens"
        mentions_limit = "max_tokens" in said or "max_completion_tokens" in said
        if mentions_limit and other in said and re.search(r"unsupported|not supported|use '", said):
            self.limit_field = other
            return f"the server wants {other} and was asked again"
        if re.search(r"(tool_call_?id|tool call id|tool_calls.{0,20}\bid\b|tool_use.{0,20}id)", said):
            if self.short_ids and _has_short_ids(body):
                return None
            self.short_ids = True
            return "the server wants other ids of calls and was asked again with them"
        for name in _OPTIONAL:
            if name in body and re.search(rf"\b{name}\b", said) and _REFUSING.search(said):
                if name == "tool_choice" and body[name] == "none":
                    break
                self.left_out.add(name)
                return f"the server does not take {name} and was asked again without"
        if "reasoning" in said and self.reasoning_field is not None and _sent_reasoning(body, self.reasoning_field):
            self.reasoning_field = None
            self.left_out.add(REASONING)
            return "the server does not take reasoning back and was asked again without"
        if re.search(r"system.{0,20}role|role.{0,20}system|developer instruction", said) and self.system_role:
            self.system_role = False
            return "the server takes no system message and was asked again without"
        if self.empty_messages and re.search(r"(content|message).{0,80}(empty|must have|cannot be blank)", said):
            self.empty_messages = False
            return "the server takes no empty messages and was asked again without"
        return self._without_tools(said, body)

    def _without_tools(self, said: str, body: Mapping[str, Any]) -> str | None:
        if "tools" not in body or not re.search(r"\btools?\b|tool[_ -]choice|tool[_ -]call|function", said):
            return None
        parser = "auto-tool-choice" in said or "tool-call-parser" in said
        if parser and body.get("tool_choice") != "none":
            if self.tools is Tools.NATIVE:
                self.tools = Tools.UNPARSED
            return "the server does not parse tool calls, they are read from the text"
        self.tools = Tools.TEXT
        return "the server takes no tools, they are described in the text"


def _as_text(messages: Iterable[Message], tools: Sequence[Message]) -> list[Message]:
    """Tools, calls and results in the words of messages, for templates that know only system, user and assistant."""
    made: list[Message] = []
    described = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "system" and tools:
            content += TOOLS_AS_TEXT.format(tools=described)
        elif role == "tool":
            role, content = "user", f"<tool_response>\n{content.rstrip()}\n</tool_response>"
        for call in message.get("tool_calls", ()):
            content = f"{content}\n{_call_as_text(call)}".lstrip("\n")
        if made and made[-1]["role"] == role != "system":
            made[-1]["content"] += "\n" + content
        else:
            made.append({"role": role, "content": content})
    return made


def _call_as_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}\n</tool_call>'


def _with_reasoning(message: Message, name: str | None) -> Message:
    """Thoughts in the field where the server had put them; None leaves them out."""
    if message["role"] != "assistant" or not message.get("content"):
        return message
    thoughts, words = split_thoughts(message["content"])
    if not thoughts:
        return message
    return {**message, "content": words} if name is None else {**message, "content": words, name: thoughts}


def _sent_reasoning(body: Mapping[str, Any], name: str) -> bool:
    return any(name in message for message in body["messages"])


def _short_id(call_id: str) -> str:
    """Nine letters and digits, which is what the strictest servers want: `t4.2` is `t00004002`."""
    turn, _, number = call_id.removeprefix("t").partition(".")
    return f"t{turn:0>5}{number:0>3}"


def _with_short_ids(message: Message) -> Message:
    made = dict(message)
    if "tool_call_id" in message:
        made["tool_call_id"] = _short_id(message["tool_call_id"])
    if "tool_calls" in message:
        made["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in message["tool_calls"]]
    return made


def _has_short_ids(body: Mapping[str, Any]) -> bool:
    return not any("." in str(message.get("tool_call_id", "")) for message in body["messages"])


def _without_system(messages: list[Message]) -> list[Message]:
    """The system's words at the head of the user's first message."""
    words = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [m for m in messages if m["role"] != "system"]
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": f"{words}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": words}, *rest]
