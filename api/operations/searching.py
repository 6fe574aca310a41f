"""`search`: ask a collection a question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thresher.api.config import shared_ranking
from thresher.api.operations.base import Document, Operation, Reporter, Request, Target
from thresher.api.policies import PolicyChoice, open_policy
from thresher.api.schema import search_response
from thresher.api.traces import with_trace_saved
from thresher.api.web import WebChoice, open_web
from thresher.corpus.retrieval.ranking import MAX_DEPTH, PLAIN, RRF, Ranking
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.engine.tools import corpus_tools, with_added

if TYPE_CHECKING:
    from pydantic import SecretStr

    from thresher.corpus.collection import Collection
    from thresher.engine.events import Event
    from thresher.engine.requests import SearchResult


class SearchOperationRequest(Request):
    """One search. `save` keeps its trajectory, `trace` puts it into the result.

    The key of the model's server is no part of it: the process that searches uses its own.
    """

    search: SearchRequest
    policy: PolicyChoice = PolicyChoice()
    fusion: str = RRF
    near_duplicates: bool | float = False
    reranker: str | None = None
    rerank_depth: int = MAX_DEPTH
    web: WebChoice = WebChoice()
    tools: tuple[str, ...] = ()
    save: bool = True
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Searching:
    """What a search needs beside its request. `key`: what the model's server wants; `tools`: what plugins add."""

    collection: Collection
    policy: PolicyChoice
    key: SecretStr | None = None
    ranking: Ranking = PLAIN
    web: WebChoice = field(default_factory=WebChoice)
    tools: tuple[str, ...] = ()


def run_search(searching: Searching, request: SearchRequest, reporter: Reporter, *, save: bool) -> SearchResult:
    """Run one search in an event loop of its own; cancelled, it returns what it has. Keeps the trajectory if `save`."""

    async def run() -> SearchResult:
        cancel = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(cancel.set)

        async with open_policy(searching.policy, searching.key) as policy, open_web(searching.web) as web:
            profile = searching.policy.engine_profile(policy)
            engine = SearchEngine(
                searching.collection,
                policy,
                profile=profile,
                ranking=searching.ranking,
                tools=with_added(corpus_tools, searching.tools),
                web=web,
                keep_pages=searching.web.keep,
            )
            with reporter.when_cancelled(stop):
                return await engine.search(request, on_event=tell, cancel=cancel)

    def tell(event: Event) -> None:
        reporter.note("search", {"type": str(event.type), "data": dict(event.data)})

    result = asyncio.run(run())
    return with_trace_saved(result) if save else result


def _search(target: Target, request: SearchOperationRequest, reporter: Reporter) -> Document:
    ranking = shared_ranking(request.fusion, request.near_duplicates, request.reranker, request.rerank_depth)
    with target.open() as opened:
        searching = Searching(opened, request.policy, target.model_key, ranking, request.web, request.tools)
        result = run_search(searching, request.search, reporter, save=request.save)
    return search_response(result, include_trace=request.trace).model_dump(mode="json")


SEARCH = Operation("search", SearchOperationRequest, _search, finishes=True)
