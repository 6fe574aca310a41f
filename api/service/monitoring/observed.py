"""An engine that is watched: metrics and spans of each search, whoever asked for it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass

from thresher.api.errors import explain
from thresher.api.service.monitoring.metrics import Metrics
from thresher.api.service.monitoring.tracing import Tracing
from thresher.engine.events import Event, EventSink
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of searches."""

    metrics: Metrics
    tracing: Tracing | None = None


class WatchedEngine(SearchEngine):
    """A search engine whose searches are told to its `watch`; None: to nobody."""

    watch: Watch | None = None

    async def search(
        self,
        request: SearchRequest,
        *,
        on_event: EventSink | None = None,
        cancel: asyncio.Event | None = None,
        search_id: str | None = None,
        seed: int = 0,
    ) -> SearchResult:
        """See `SearchEngine.search`."""
        watch = self.watch
        if watch is None:
            return await super().search(request, on_event=on_event, cancel=cancel, search_id=search_id, seed=seed)
        running = watch.metrics.searches_in_flight.labels(str(request.effort))
        with running.track_inprogress(), watch.tracing.search(request) if watch.tracing else nullcontext() as spans:

            def told(event: Event) -> None:
                assert spans is not None
                spans.event(event)
                if on_event is not None:
                    on_event(event)

            try:
                result = await super().search(
                    request, on_event=told if spans else on_event, cancel=cancel, search_id=search_id, seed=seed
                )
            except Exception as error:
                watch.metrics.search_raised(request, expected=_refused(error))
                raise
            if spans is not None:
                spans.ended(result)
            watch.metrics.search_ended(request, result)
            return result


def _refused(error: Exception) -> bool:
    """Whether it is the request that is at fault."""
    problem = explain(error)
    return problem is not None and problem.status < 500
