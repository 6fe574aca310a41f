"""One search for training, once: what it found, and with which weights each turn was sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from thresher.engine.events import Event, EventType
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.faults import Fault, fault_of, fault_of_error
from thresher.train.rollouts.versions import turn_versions
from thresher.train.tasks.task import Task


@dataclass(slots=True)
class Attempt:
    """A search under way, or about to be.

    Attributes:
        cancel: ends it, once the engine has kept what it found.
        searching: whether the engine is at it.
        began: the version that was current when each of its turns began.
    """

    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    searching: bool = False
    began: dict[int, int] = field(default_factory=dict)

    @property
    def oldest(self) -> int | None:
        """The version of its oldest turn, as far as it is known; None before the first."""
        return min(self.began.values(), default=None)


@dataclass(frozen=True, slots=True)
class Found:
    """How an attempt ended: with a result, or with a fault in its place."""

    result: SearchResult | None
    fault: Fault | None
    versions: tuple[int, ...] = ()


def request_for(request: SearchRequest, task: Task, deadline_s: float | None) -> SearchRequest:
    """The request for a task.

    Raises:
        InvalidRequest: the task's question cannot be asked.
        ValueError: the request is for several searches, whose turns belong to no one trajectory.
    """
    if request.rollouts != 1:
        raise ValueError("a rollout is one search: leave rollouts of the request at 1, and take a larger group")
    return replace(request, query=task.question, deadline_s=request.deadline_s if deadline_s is None else deadline_s)


async def search_once(
    engine: SearchEngine,
    request: SearchRequest,
    task: Task,
    *,
    seed: int,
    attempt: Attempt,
    version: Callable[[], int],
    deadline_s: float | None = None,
) -> Found:
    """Run a task once.

    Raises:
        Exception: a bug. What the infrastructure does comes back as a fault.
    """

    def on_event(event: Event) -> None:
        if event.type is EventType.TURN_STARTED and "agent" not in event.data:
            attempt.began[event.data["turn"]] = version()

    attempt.searching = True
    try:
        asked = request_for(request, task, deadline_s)
        result = await engine.search(asked, on_event=on_event, cancel=attempt.cancel, seed=seed)
    except Exception as error:
        fault = fault_of_error(error)
        if fault is None:
            raise
        return Found(None, fault)
    finally:
        attempt.searching = False
    return Found(result, fault_of(result), turn_versions(result.trajectory, attempt.began))
