"""A chat completion as a server sends it, whole or in pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thresher.engine.policies.model.reading.recovery import Written
from thresher.engine.policy import ModelUsage

_NEST = 4
"""How deep lists of parts may be."""
REASONING_FIELDS = ("reasoning", "reasoning_content")
"""Newer vLLM and OpenRouter say the first, DeepSeek, llama.cpp and older vLLM the second."""


class BadReply(Exception):
    """What came is no chat completion."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply as it is written.

    `kind` is `reasoning`, `content`, `call` (`text` is a piece of its arguments, `name` the tool so far, `index` its
    place) or `restart` (the stream broke off: forget the pieces so far).
    """

    kind: str
    text: str = ""
    index: int = 0
    name: str = ""


OnDelta = Callable[[Delta], None]


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One choice of a completion. `reasoning_field`: where the server put the reasoning, None if nowhere."""

    content: str
    reasoning: str
    calls: tuple[Written, ...]
    finish: str
    model: str
    usage: ModelUsage
    reasoning_field: str | None = None


def read_reply(answer: Mapping[str, Any]) -> ChatReply:
    """The reply in a whole completion.

    Raises:
        BadReply: it holds none.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise BadReply("the answer is no chat completion: it has no message")
    name = next((name for name in REASONING_FIELDS if _text(message.get(name))), None)
    calls = message.get("tool_calls")
    written = [_written(call) for call in calls] if isinstance(calls, list) else []
    single = message.get("function_call")  # the form before tool calls
    if not written and isinstance(single, Mapping):
        written = [_written({"function": single})]
    return ChatReply(
        content=_text(message.get("content")),
        reasoning=_text(message.get(name)) if name else "",
        calls=tuple(call for call in written if call is not None),
        finish=str(choice.get("finish_reason") or ""),
        model=str(answer.get("model") or ""),
        usage=read_usage(answer.get("usage")),
        reasoning_field=name,
    )


def read_usage(usage: Any) -> ModelUsage:
    """What a server counted; zeros for what it does not say."""
    if not isinstance(usage, Mapping):
        return ModelUsage()
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else usage.get("prompt_cache_hit_tokens")
    return ModelUsage(_number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens")), _number(cached))


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: Any = ""


@dataclass(slots=True)
class ReplyStream:
    """Puts the pieces of a streamed reply together; `on_delta` sees each as it comes."""

    on_delta: OnDelta | None = None
    _answer: dict[str, Any] = field(default_factory=dict)
    _message: dict[str, Any] = field(default_factory=dict)
    _parts: dict[str, list[str]] = field(default_factory=dict)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _place_of: dict[str, int] = field(default_factory=dict)
    _last: int = -1
    _finish: str = ""

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one event. An event that is a whole completion, from a server that does not stream, is taken as such."""
        for name in ("model", "usage"):
            if event.get(name):
                self._answer[name] = event[name]
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return
        self._finish = str(choice.get("finish_reason") or self._finish)
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, Mapping):
            return
        for name in (*REASONING_FIELDS, "content"):
            if text := _text(delta.get(name)):
                self._parts.setdefault(name, []).append(text)
                self._tell(Delta("content" if name == "content" else "reasoning", text))
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, Mapping):
                self._add_call(piece)

    def cut(self) -> None:
        """No more is taken: what there is counts as a reply that reached its length limit."""
        self._finish = "length"

    def reply(self) -> ChatReply:
        """The whole reply. Raises `BadReply` when nothing came."""
        if not self._parts and not self._calls and not self._finish:
            raise BadReply("the stream held no reply")
        message: dict[str, Any] = {name: "".join(parts) for name, parts in self._parts.items()}
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}} for _, call in sorted(self._calls.items())
        ]
        return read_reply({**self._answer, "choices": [{"message": message, "finish_reason": self._finish}]})

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, arguments = _text(function.get("name")), function.get("arguments")
        index = self._index(piece, name)
        call = self._calls.setdefault(index, _Call())
        self._last = max(self._last, index)
        if not call.id and (identity := _text(piece.get("id"))):
            call.id = identity
            self._place_of.setdefault(identity, index)
        if name and name != call.name:  # some servers repeat the name with every piece
            call.name += name
        if isinstance(arguments, str) and isinstance(call.arguments, str):
            call.arguments += arguments
        elif arguments is not None and not isinstance(arguments, str):
            call.arguments = arguments
        self._tell(Delta("call", arguments if isinstance(arguments, str) else "", index, call.name))

    def _index(self, piece: Mapping[str, Any], name: str) -> int:
        """Which call a piece belongs to. Some servers leave the index out, or give every call the same."""
        index, last = piece.get("index"), self._last
        known = self._calls.get(index) if isinstance(index, int) else None
        identity = _text(piece.get("id"))
        if isinstance(index, int) and (known is None or not (identity and known.id and identity != known.id and name)):
            return index
        if identity in self._place_of:
            return self._place_of[identity]
        return last + 1 if name or last < 0 else last

    def _tell(self, delta: Delta) -> None:
        if self.on_delta is not None:
            self.on_delta(delta)


def _written(call: Any) -> Written | None:
    if not isinstance(call, Mapping):
        return None
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = call
    return Written(function.get("name"), function.get("arguments"))


def _text(value: Any, depth: int = 0) -> str:
    """Text that may come as a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < _NEST:
        parts = (part.get("text") if isinstance(part, Mapping) else part for part in value)
        return "".join(_text(part, depth + 1) for part in parts)
    return ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
