"""What a chat request asks: which model name means which search, and which question the messages come to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.http.doors.asking import Lenient, Options, unsupported
from thresher.engine.requests import MAX_QUERY_CHARACTERS, Effort

MODEL = "thresher"
MAX_MESSAGES = 1_000
MAX_STANDING_WORDS = 12
"""A question of more words that says "it" mostly says itself what "it" is."""
TURN_CHARACTERS = 400
"""What is kept of one earlier message."""
CONTEXT_CHARACTERS = 2_000
"""What is kept of all earlier messages: more would drown the question."""

_NAME = re.compile(r"thresher(?:-(?P<effort>minimal|low|medium|high))?(?::(?P<collections>.+))?")
_WORD = re.compile(r"\w+")
_CONNECTIVE = re.compile(r"\s*(and|but|or|so|then|also|what about|how about)\b", re.IGNORECASE)
_PRONOUN = re.compile(r"\b(it|its|he|him|his|she|her|hers|they|them|their|theirs|this|these|those)\b", re.IGNORECASE)
# Begins only where a run of line ends begins: tried at each of them, it would take the square of their number.
_OWN_LISTS = re.compile(r"(?<!\n)\n+(?:Sources|Passages that came nearest):\n.*", re.DOTALL)
_MARKER = re.compile(r" ?\[\d+\]")
_EFFORTS = {
    "none": Effort.MINIMAL,
    **{str(effort): effort for effort in Effort},
    "xhigh": Effort.HIGH,
    "max": Effort.HIGH,
}
"""By the names that `reasoning_effort` has for them."""


class ChatOptions(Options):
    """The `thresher` object of a chat request."""

    max_results: int | None = Field(default=None, ge=1, le=100, description="Passages that the answer may be made of.")
    progress: bool = Field(
        default=False, description="While the search runs, stream what it does as `delta.reasoning_content`."
    )
    context: Literal["auto", "conversation", "question"] = Field(
        default="auto",
        description="What is searched for: `question`, the last user message alone; `conversation`, that and the "
        "messages before it, condensed; `auto`, the conversation where a language model decides, and elsewhere only "
        "if the question cannot stand alone.",
    )


class TextPart(Lenient):
    """A part of a message. Only text is read."""

    type: str
    text: str | None = None


class Message(Lenient):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None


class StreamOptions(Lenient):
    """`include_usage`: a last chunk without choices tells what the search cost."""

    include_usage: bool | None = False


_Count = Annotated[int, Field(ge=1)]


class ChatBody(Lenient):
    """`POST /v1/chat/completions`. Sampling fields and whatever else does not change the answer are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "thresher-low",
                    "messages": [{"role": "user", "content": "Who founded the Brask works?"}],
                },
                {
                    "model": "thresher:letters",
                    "messages": [{"role": "user", "content": "Which yards closed after 1950?"}],
                    "stream": True,
                    "stream_options": {"include_usage": True},
                    "thresher": {"filters": {"type": "gte", "key": "year", "value": 1950}, "progress": True},
                },
            ]
        },
    )

    model: str = Field(description="`thresher[-EFFORT][:COLLECTION[,COLLECTION…]]`; `GET /v1/models` lists them.")
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: _Count | None = 1
    reasoning_effort: str | None = Field(default=None, description="How hard to search, if nothing else says so.")
    tools: list[Any] | None = Field(default=None, description="Ignored: Thresher calls its own tools.")
    tool_choice: str | dict[str, Any] | None = None
    functions: list[Any] | None = None
    function_call: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    thresher: ChatOptions | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a model name means: an effort and collections, None where it says nothing."""

    effort: Effort | None
    collections: list[str] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that a conversation comes to, and what of the conversation it leaves out."""

    query: str
    notices: tuple[str, ...] = ()


def chosen(model: str) -> Chosen:
    """The search behind a model name.

    Raises:
        ApiError: 404, there is no such model.
    """
    match = _NAME.fullmatch(model)
    if match is None:
        message = (
            f"there is no model {model[:100]!r}; use thresher, thresher-minimal, -low, -medium or -high, with "
            ":COLLECTION behind it to search that collection; GET /v1/models lists them"
        )
        raise ApiError(404, "model_not_found", message, type="not_found_error", param="model")
    effort, collections = match["effort"], match["collections"]
    return Chosen(Effort(effort) if effort else None, collections.split(",") if collections else None)


def refuse_unsupported(body: ChatBody) -> None:
    """Say so where the request insists on something that is not done.

    Raises:
        ApiError: 422, naming the field.
    """
    if (body.n or 1) > 1:
        raise unsupported("n", f"n must be 1: one search gives one answer, not {body.n}")
    for field, choice in (("tool_choice", body.tool_choice), ("function_call", body.function_call)):
        if choice not in (None, "auto", "none"):
            raise unsupported(
                field, f"{field} insists on a call, but Thresher answers by itself; leave it out, or send 'auto'"
            )
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        message = f"response_format {str(kind)[:50]!r} is not supported: the answer is text; POST /v1/search is JSON"
        raise unsupported("response_format", message)
    if body.logprobs:
        raise unsupported("logprobs", "there are no logprobs: the answer is made of evidence, not sampled")
    if body.audio is not None or set(body.modalities or ["text"]) != {"text"}:
        raise unsupported("modalities", "only text comes out; leave audio and modalities out")


def effort_of(body: ChatBody, named: Chosen) -> Effort | None:
    """How hard to search: as the `thresher` object says, else the model's name, else `reasoning_effort`.

    Raises:
        ApiError: 422, there is no such `reasoning_effort`.
    """
    asked = body.reasoning_effort
    if asked is not None and asked not in _EFFORTS:
        message = f"reasoning_effort: {asked[:50]!r} is none of {', '.join(_EFFORTS)}"
        raise ApiError(422, "invalid_field", message, param="reasoning_effort")
    own = body.thresher.effort if body.thresher is not None else None
    return own or named.effort or (_EFFORTS[asked] if asked is not None else None)


def question(messages: Sequence[Message], *, context: str, reads_on: bool) -> Asked:
    """The question: the last user message, with the conversation before it as `context` says.

    A conversation that is not needed costs a search a quarter of what it finds where no model reads it (measured on
    the sample corpus), so `auto` adds it there only to a question that leans on it. `reads_on` is whether a language
    model decides in this search, which can tell the one from the other.

    Raises:
        ApiError: 422, there is no user message, it is empty or too long, or something in it is no text.
    """
    texts = [(place, message.role, _text(message, place)) for place, message in enumerate(messages)]
    last = next((place for place, role, _ in reversed(texts) if role == "user"), None)
    if last is None:
        raise ApiError(422, "invalid_field", "messages: there is no user message to answer", param="messages")
    query = texts[last][2].strip()
    if not query:
        raise ApiError(422, "invalid_field", "messages: the last user message is empty", param="messages")
    if len(query) > MAX_QUERY_CHARACTERS:
        message = (
            f"messages: the last user message is the question and has {len(query):,} characters; the limit is "
            f"{MAX_QUERY_CHARACTERS:,}: put long texts into a collection"
        )
        raise ApiError(422, "invalid_field", message, param="messages")
    notices = []
    unused = sum(role not in ("user", "assistant") and bool(text.strip()) for _, role, text in texts)
    if unused:
        notices.append(f"{_messages(unused)} of the roles system, developer and tool not used: they are no question")
    if later := len(texts) - 1 - last:
        notices.append(f"{_messages(later)} after the last user message not used")
    spoken = [(role, text) for _, role, text in texts[:last] if role in ("user", "assistant") and text.strip()]
    if not spoken:
        return Asked(query, tuple(notices))
    if context == "question" or (context == "auto" and not reads_on and not leans(query)):
        notices.append(
            f"{_messages(len(spoken))} before the question not searched for; thresher.context: conversation adds them"
        )
        return Asked(query, tuple(notices))
    room = min(CONTEXT_CHARACTERS, MAX_QUERY_CHARACTERS - len(query) - len(_HEADING))
    kept = _condensed(spoken, room)
    notices.append(f"{_messages(len(kept))} before the question searched for with it, condensed")
    if len(kept) < len(spoken):
        notices.append(f"{_messages(len(spoken) - len(kept))} before those left out: too long for a question")
    return Asked(query + _HEADING + "\n".join(kept) if kept else query, tuple(notices))


_HEADING = "\n\nEarlier in this conversation:\n"


def leans(query: str) -> bool:
    """Whether a question seems to need what was said before: a rule of thumb for English, and for very short ones."""
    words = len(_WORD.findall(query))
    if words <= 3 or _CONNECTIVE.match(query):
        return True
    return words <= MAX_STANDING_WORDS and _PRONOUN.search(query) is not None


def _condensed(spoken: Sequence[tuple[str, str]], room: int) -> list[str]:
    """The newest messages that fit, oldest first, each cut to its beginning, answers without their lists."""
    kept: list[str] = []
    for role, text in reversed(spoken):
        if role == "assistant":
            text = _MARKER.sub("", _OWN_LISTS.sub("", text))
        flat = " ".join(text.split())
        line = f"{role}: {flat if len(flat) <= TURN_CHARACTERS else flat[: TURN_CHARACTERS - 1] + '…'}"
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def _text(message: Message, place: int) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    texts = []
    for number, part in enumerate(message.content):
        if part.type not in ("text", "input_text", "output_text", "refusal"):
            param = f"messages.{place}.content.{number}"
            kind = part.type[:50]
            raise unsupported(param, f"{param}: a part of type {kind!r} cannot be read here; send text only")
        texts.append(part.text or "")
    return "\n".join(texts)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
