"""Events that a search emits while it runs, named as they go over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """Kinds of events, in the order in which a search first emits them."""

    SEARCH_CREATED = "search.created"
    TURN_STARTED = "turn.started"
    TOOL_CALLED = "tool.called"
    TOOL_RESULT = "tool.result"
    CONTEXT_EDITED = "context.edited"
    RESULT_ADDED = "result.added"
    SEARCH_COMPLETED = "search.completed"
    SEARCH_FAILED = "search.failed"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `data` is plain JSON-ready data."""

    type: EventType
    data: dict[str, Any]


EventSink = Callable[[Event], None]
