"""Events that a search emits while it runs, named as they go over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """Kinds of events, in the order in which a search first emits them.

    What a sub-agent does is told by the same kinds, with its name as `agent` in the data; what one of several
    rollouts does, with its number as `rollout`.
    """

    SEARCH_CREATED = "search.created"
    TURN_STARTED = "turn.started"
    TOOL_CALLED = "tool.called"
    TOOL_RESULT = "tool.result"
    CONTEXT_EDITED = "context.edited"
    SUBAGENT_STARTED = "subagent.started"
    SUBAGENT_ENDED = "subagent.ended"
    RESULT_ADDED = "result.added"
    ANSWER_WRITTEN = "answer.written"
    SEARCH_COMPLETED = "search.completed"
    SEARCH_FAILED = "search.failed"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `data` is plain JSON-ready data."""

    type: EventType
    data: dict[str, Any]


EventSink = Callable[[Event], None]
