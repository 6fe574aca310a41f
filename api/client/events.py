"""Server-sent events: bytes in, typed events out, and where to go on when the connection breaks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from thresher.api.client.errors import ConnectionFailed, InvalidReply, RequestTimeout, SearchFailed
from thresher.api.client.models import Job
from thresher.api.schema import SearchResponse

if TYPE_CHECKING:
    from thresher.api.client.calls import Call

T = TypeVar("T")


class Event(BaseModel):
    """Something that happened in a search or a job.

    Attributes:
        number: 1, 2, … within the search or job; `events(after=number)` goes on behind it.
        type: as it goes over the wire, such as `turn.started`. A kind that this client does not know is a plain
            `Event`.
        data: all that was told.
        agent: the sub-agent that it is about, "" for the search itself.
        rollout: which of several searches of the same question, from 1; None where there is one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    type: str
    data: dict[str, Any] = Field(repr=False)
    agent: str = ""
    rollout: int | None = None


class SearchCreated(Event):
    """A search began. `search_id` is what to attach to it by."""

    search_id: str
    query: str = ""
    effort: str = ""


class TurnStarted(Event):
    """The policy is asked; its prompt has so many tokens of the `total` that `budget` names."""

    turn: int
    prompt_tokens: int
    budget: dict[str, int] = {}


class ToolCalled(Event):
    """The policy called a tool. `arguments` is the text that it wrote, JSON if it wrote well."""

    turn: int
    id: str
    tool: str
    arguments: str


class ToolResult(Event):
    """A tool answered with `message`.

    `chunks` are the passages that it brought: `{id, document_id, title, tokens, snippet}` each.
    """

    turn: int
    id: str
    tool: str
    outcome: str
    message: str | None = None
    chunks: list[dict[str, Any]] = []


class ContextEdited(Event):
    """Passages were taken out of the context, or put back, by their ids; `receipt` says all of it."""

    turn: int
    removed: list[str] = []
    restored: list[str] = []
    freed_tokens: int = 0
    reprefill_tokens: int = 0
    receipt: dict[str, Any]


class SubagentStarted(Event):
    """A part of the question was handed on."""

    turn: int
    task: str


class SubagentEnded(Event):
    """A sub-agent came back with so many pieces of evidence."""

    turn: int
    stop_reason: str
    evidence: int


class ResultAdded(Event):
    """One passage of the final list."""

    rank: int
    id: str
    document_id: str
    title: str


class AnswerWritten(Event):
    """The answer, or why there is none."""

    text: str
    withheld_reason: str | None = None
    citations: int


class SearchEnded(Event):
    """The last event of a search; `response` is all of it, failed or not."""

    status: str
    response: SearchResponse


class JobEvent(Event):
    """What a job has done so far."""

    job: Job


_KINDS: dict[str, type[Event]] = {
    "search.created": SearchCreated,
    "turn.started": TurnStarted,
    "tool.called": ToolCalled,
    "tool.result": ToolResult,
    "context.edited": ContextEdited,
    "subagent.started": SubagentStarted,
    "subagent.ended": SubagentEnded,
    "result.added": ResultAdded,
    "answer.written": AnswerWritten,
    "search.completed": SearchEnded,
    "search.failed": SearchEnded,
}
LAST = frozenset({"search.completed", "search.failed", "job.succeeded", "job.failed", "job.cancelled"})
"""Nothing comes after these."""


def typed(number: int, type: str, data: dict[str, Any]) -> Event:
    """The event as its own kind; a plain `Event` where it is of none that is known, or has not its fields."""
    kind = _KINDS.get(type) or (JobEvent if type.startswith("job.") else Event)
    plain = {"number": number, "type": type, "data": data}
    try:
        return kind.model_validate({**data, **plain})
    except ValidationError:
        return Event.model_validate(plain)


class Parser:
    """Takes an event stream in pieces as they come. Lines end in LF, CR LF or CR, and in nothing else."""

    def __init__(self) -> None:
        self._left = b""
        self._fields: dict[str, str] = {}

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in this piece."""
        whole = self._left + piece
        held = b"\r" if whole.endswith(b"\r") else b""  # its LF may be yet to come
        *lines, self._left = whole.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._left += held
        for line in lines:
            if line:
                self._field(line.decode("utf-8", "replace"))
            elif (event := self._event()) is not None:
                yield event

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        self._fields[name] = value  # a comment has the name ""

    def _event(self) -> Event | None:
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        number = fields.get("id", "")
        try:
            data = json.loads(fields["data"])
        except ValueError as error:
            raise InvalidReply(f"event {number or 'without a number'} of the stream is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise InvalidReply(f"event {number or 'without a number'} of the stream is no JSON object")
        # ASCII digits only: others pass `isdecimal` too.
        known = int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else 0
        return typed(known, fields.get("event", "message"), data)


class Following:
    """A stream that is read to its last event, over as many connections as that takes.

    Attributes:
        last: the number of the last event that came.
        ended: the last event of all has come.
        brought: this connection has brought an event.
        broken: what it broke by; None where the server closed it.

    Args:
        after: the number of the last event that is known already.
        losses: how many connections in a row may break without bringing anything.
        timeout_s: seconds until it is given up; None for never.
    """

    def __init__(self, what: str, *, after: int = 0, losses: int, timeout_s: float | None = None) -> None:
        self.last = after
        self.ended = False
        self._what = what
        self._losses = losses
        self.broken: Exception | None = None
        self.brought = False
        self._lost = 0
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._parser = Parser()

    def connected(self) -> None:
        """A new connection: what the old one left in the middle of an event is dropped."""
        self._parser = Parser()
        self.brought, self.broken = False, None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events in this piece that are new."""
        for event in self._parser.feed(piece):
            self.ended = event.type in LAST
            if not event.number or event.number > self.last:
                self.last = max(self.last, event.number)
                self._lost, self.brought = 0, True
                yield event
            if self.ended:
                return
        self.check()

    def lost(self) -> None:
        """The connection is gone, and the last event has not come.

        Raises:
            ConnectionFailed: too often.
            RequestTimeout: the time is up.
        """
        self.check()
        self._lost += 1
        if self._lost > self._losses:
            message = f"the events of {self._what} broke off after number {self.last}; it may still be running"
            raise ConnectionFailed(message) from self.broken

    def check(self) -> None:
        """See that there is time left.

        Raises:
            RequestTimeout: there is none.
        """
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise RequestTimeout(f"{self._what} has not ended in time: it goes on, wait for it again or cancel it")

    def bounded(self, call: Call[T]) -> Call[T]:
        """The call, which waits for no byte longer than there is time left."""
        if self._deadline is None:
            return call
        return call.within(max(0.001, min(call.timeout_s, self._deadline - time.monotonic())))


def response_of(event: Event | None, what: str) -> SearchResponse:
    """The search of its last event.

    Raises:
        SearchFailed: the event has none.
    """
    if isinstance(event, SearchEnded):
        return event.response
    data = event.data if event is not None else {}
    error = data.get("error") if isinstance(data.get("error"), dict) else {}
    message = (error or {}).get("message") or data.get("message") or "its stream ended without a result"
    raise SearchFailed(f"{what} failed: {message}", code=str((error or {}).get("code") or ""))
