"""`search`: ask a collection a question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from thresher.api.config import shared_ranking
from thresher.api.operations.base import Document, Operation, Reporter, Request, Target, Text
from thresher.api.schema import search_response
from thresher.api.traces import with_trace_saved
from thresher.corpus.retrieval.ranking import MAX_DEPTH, RRF
from thresher.engine.requests import Edits, Effort, SearchRequest
from thresher.engine.search import SearchEngine

if TYPE_CHECKING:
    from thresher.engine.events import Event
    from thresher.engine.requests import SearchResult


class SearchOperationRequest(Request):
    """One search. `save` keeps its trajectory, `trace` puts it into the result."""

    query: Text
    effort: Effort = Effort.MEDIUM
    max_results: int = 10
    max_turns: int | None = None
    max_tokens: int | None = None
    deadline_s: float | None = None
    filters: dict[str, Any] | None = None
    edits: Edits = Edits.IMMEDIATE
    policy: str = "builtin"
    fusion: str = RRF
    near_duplicates: bool | float = False
    reranker: str | None = None
    rerank_depth: int = MAX_DEPTH
    save: bool = True
    trace: bool = False

    def checked(self) -> SearchRequest:
        """The engine's request.

        Raises:
            InvalidRequest: a value is out of range.
        """
        return SearchRequest(
            self.query,
            effort=self.effort,
            max_results=self.max_results,
            max_turns=self.max_turns,
            max_tokens=self.max_tokens,
            deadline_s=self.deadline_s,
            filters=self.filters,
            edits=self.edits,
        )


def run_search(engine: SearchEngine, request: SearchRequest, reporter: Reporter, *, save: bool) -> SearchResult:
    """Run one search in an event loop of its own; cancelled, it returns what it has. Keeps the trajectory if `save`."""

    async def run() -> SearchResult:
        cancel = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(cancel.set)

        with reporter.when_cancelled(stop):
            return await engine.search(request, on_event=tell, cancel=cancel)

    def tell(event: Event) -> None:
        reporter.note("search", {"type": str(event.type), "data": dict(event.data)})

    result = asyncio.run(run())
    return with_trace_saved(result) if save else result


def _search(target: Target, request: SearchOperationRequest, reporter: Reporter) -> Document:
    asked = request.checked()
    ranking = shared_ranking(request.fusion, request.near_duplicates, request.reranker, request.rerank_depth)
    with target.open() as opened:
        engine = SearchEngine(opened, request.policy, ranking=ranking)
        result = run_search(engine, asked, reporter, save=request.save)
    return search_response(result, include_trace=request.trace).model_dump(mode="json")


SEARCH = Operation("search", SearchOperationRequest, _search, finishes=True)
