"""The engine's front door: one request in, one result out."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from thresher.context import TokenCounter
from thresher.corpus.chunker import CHUNKER_VERSION, load_chunker
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.corpus.web.keeping import keep_pages
from thresher.corpus.web.reading import ReadPage
from thresher.corpus.web.web import Web
from thresher.engine.agent import Agent, PolicyFactory, Surroundings
from thresher.engine.answering import Answerer, answered, answerer_for
from thresher.engine.best_of import best_of
from thresher.engine.errors import InvalidRequest
from thresher.engine.events import Event, EventSink, EventType
from thresher.engine.limits import Limits, Stopped
from thresher.engine.loop import Emit
from thresher.engine.policies import make_policy
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.reporting import ENDINGS, STATUS, result_of
from thresher.engine.requests import Effort, RankedEvidence, SearchRequest, SearchResult, Source, StopReason, Usage
from thresher.engine.results import rank_results, ranked_evidence, with_pages
from thresher.engine.swarm import SwarmSettings
from thresher.engine.tools import CorpusScope, Found, Tool, corpus_tools
from thresher.engine.tools.retrieval import CORPUS_TOOLS
from thresher.engine.tools.web import WebScope, web_tools

__all__ = ["PolicyFactory", "SearchEngine", "ToolFactory"]

logger = logging.getLogger(__name__)

ToolFactory = Callable[[CorpusScope], tuple[Tool, ...]]
"""Makes the tools of a search."""


def tell_result(result: SearchResult, emit: Emit) -> None:
    """Emit what a search found, and that it has ended."""
    for position, evidence in enumerate(result.results, 1):
        found = {"rank": position, "id": evidence.id, "document_id": evidence.document_id, "title": evidence.title}
        emit(EventType.RESULT_ADDED, found | ({"collection": evidence.collection} if evidence.collection else {}))
    if result.answer is not None:
        written = {"text": result.answer.text, "withheld_reason": result.answer.withheld_reason}
        emit(EventType.ANSWER_WRITTEN, {**written, "citations": len(result.answer.citations)})
    ending = EventType.SEARCH_FAILED if result.status == "failed" else EventType.SEARCH_COMPLETED
    emit(ending, {"status": result.status, "stop_reason": str(result.stop_reason), "sufficient": result.sufficient})


def new_search_id() -> str:
    """A name that no other search has."""
    return f"search_{uuid.uuid4().hex[:16]}"


class SearchEngine:
    """Searches one collection with one kind of policy. Safe to share between concurrent searches.

    Args:
        counter: counts tokens in place of the policy's own counter.
        subagent_policy: what the sub-agents of a swarm are, if something else.
        answerer: writes answers in place of the policy's own model, or of the extracts of the builtin policy.
        tools: makes the tools; a policy is told of no others, but for those of the web.
        web: what requests with the source `web` search; whoever made it closes it.
        keep_pages: put pages that a search has read into the collection, where the next one finds them.
    """

    def __init__(
        self,
        collection: Collection,
        policy: str | PolicyFactory = "builtin",
        *,
        profile: Profile = DEFAULT,
        counter: TokenCounter | None = None,
        ranking: Ranking = PLAIN,
        swarm: SwarmSettings | None = None,
        subagent_policy: str | PolicyFactory | None = None,
        answerer: Answerer | None = None,
        tools: ToolFactory = corpus_tools,
        web: Web | None = None,
        keep_pages: bool = False,
    ) -> None:
        self.collection = collection
        self.ranking = ranking
        self.profile = profile
        self._counter = counter
        self._swarm = swarm or SwarmSettings()
        self._answerer = answerer
        self._tools = tools
        self._web = web
        self._keep_pages = keep_pages
        self._make_policy = _factory(policy)
        self._make_subagent_policy = self._make_policy if subagent_policy is None else _factory(subagent_policy)

    def with_policy(self, policy: str | PolicyFactory, *, profile: Profile | None = None) -> Self:
        """An engine beside this one that shares all with it but the policy, its sub-agents' too, and the profile."""
        other = copy.copy(self)
        other._make_policy = other._make_subagent_policy = _factory(policy)
        other.profile = profile or self.profile
        return other

    async def search(
        self,
        request: SearchRequest,
        *,
        on_event: EventSink | None = None,
        cancel: asyncio.Event | None = None,
        search_id: str | None = None,
        seed: int = 0,
    ) -> SearchResult:
        """Run a search. `search_id` is what it is called, if whoever starts it has a name for it already.

        Searches of one question with different `seed` choose differently (`thresher.engine.variation.seeded`); 0 is
        the policy as it is.

        Limits, cancellation and a failing policy end it with what was found so far; only a request that cannot be
        run at all raises, or a policy that cannot be made.

        Raises:
            InvalidFilter: `filters` does not follow the grammar.
            InvalidRequest: the question alone fills the context.
            InvalidRequest: the web is to be searched, and there is none here.
            CorpusError: at effort `minimal`, when the one search fails. With the corpus beside it, a web that cannot
                be searched is a warning.
        """
        own_id = search_id or new_search_id()

        def emit(kind: EventType, data: dict[str, Any]) -> None:
            if on_event is not None:
                on_event(Event(kind, {"search_id": own_id, **data}))

        limits = Limits.of(request.deadline_s, cancel)
        scope = CorpusScope(self.collection, request.filters, self.ranking)
        scope.where()  # a filter that cannot be parsed is the caller's error, before anything runs
        web = self._web_scope(request)
        emit(EventType.SEARCH_CREATED, {"query": request.query, "effort": str(request.effort)})
        try:
            result = await self._run(own_id, request, scope, web, limits, emit, seed)
            if web is not None and self._keep_pages:
                result = await self._kept(result, web.pages)
        except Exception as error:
            emit(EventType.SEARCH_FAILED, {"status": "failed", "message": str(error)})
            raise
        finally:
            asked = frozenset[str]() if web is None else web.close()
        if result.trajectory is not None and (untold := sorted(asked - result.trajectory.fetched)):
            result = replace(result, warnings=(*result.warnings, f"it ended while these were read: {' '.join(untold)}"))
        tell_result(result, emit)
        return result

    async def _run(
        self,
        search_id: str,
        request: SearchRequest,
        scope: CorpusScope,
        web: WebScope | None,
        limits: Limits,
        emit: Emit,
        seed: int,
    ) -> SearchResult:
        """The search in the way that the request asks for, and its answer."""
        started = time.perf_counter()
        answerer = self._answerer
        if request.effort is Effort.MINIMAL:
            result = await self._search_once(search_id, request, scope, web, limits)
        else:
            surroundings = self._surroundings(request, scope, web, limits)
            agents: dict[int, Agent] = {}

            async def rollout(number: int) -> SearchResult:
                own_id = search_id if request.rollouts == 1 else f"{search_id}/{number}"
                told = emit if request.rollouts == 1 else _as_rollout(emit, number)
                # The first is what one search alone would be.
                agent = await Agent.prepare(surroundings, request, id=own_id, emit=told, seed=seed + number - 1)
                agents[number] = agent
                return await self._search_agentically(agent, request)

            result = await (rollout(1) if request.rollouts == 1 else best_of(search_id, request, rollout))
            if answerer is None and request.include_answer:
                answerer = answerer_for(next(iter(agents.values())).policy, self.collection)
        if request.include_answer:
            result = await answered(result, answerer or answerer_for(None, self.collection), limits)
        return replace(result, usage=replace(result.usage, seconds=time.perf_counter() - started))

    async def _search_once(
        self, search_id: str, request: SearchRequest, scope: CorpusScope, web: WebScope | None, limits: Limits
    ) -> SearchResult:
        """One hybrid search, one of the web, or both at once, without a policy."""
        warnings: list[str] = []

        def look_up() -> tuple[Found, ...]:
            return scope.search(request.query, limit=request.max_results, warn=warnings.append)

        async def look_into(web: WebScope) -> tuple[Found, ...]:
            try:
                return await web.first_passages(request.query, warn=warnings.append)
            except CorpusError as error:
                if Source.CORPUS not in request.sources:
                    raise
                warnings.append(f"the web could not be searched: {error}")
                return ()

        async def search() -> tuple[RankedEvidence, ...]:
            asked: list[Awaitable[tuple[Found, ...]]] = []
            if Source.CORPUS in request.sources:
                asked.append(asyncio.to_thread(look_up))
            if web is not None:
                asked.append(look_into(web))
            found = [item for items in await asyncio.gather(*asked) for item in items]
            # Both score by reciprocal rank fusion; sorting is stable, so the corpus goes first where they are equal.
            best = sorted(found, key=lambda item: -item.score)[: request.max_results]
            evidence = [item.as_evidence(f"c{n}", query=request.query, turn=0) for n, item in enumerate(best, 1)]
            ranked = tuple(ranked_evidence(item, item.score) for item in evidence)
            return await asyncio.to_thread(with_pages, ranked, self.collection)

        reason = StopReason.FINISHED
        results: tuple[RankedEvidence, ...] = ()
        try:
            results = await limits.within(search())
        except Stopped as stop:
            reason = stop.reason
        return SearchResult(
            id=search_id,
            query=request.query,
            status=STATUS.get(reason, "partial"),
            results=results,
            stop_reason=reason,
            sufficient=None,
            justification=None,
            missing=(),
            usage=Usage(searches=len(request.sources), chunks_shown=len(results)),
            warnings=tuple(dict.fromkeys(warnings)),
            notices=(ENDINGS[reason],) if reason in ENDINGS else (),
        )

    async def _search_agentically(self, agent: Agent, request: SearchRequest) -> SearchResult:
        started = time.perf_counter()
        await agent.run()
        await agent.settle()
        adopted = agent.swarm.adopted if agent.swarm is not None else ()
        results = await asyncio.to_thread(with_pages, rank_results(agent.session, adopted), self.collection)
        return result_of(agent, request.query, results, started=started)

    def check(self, request: SearchRequest) -> None:
        """Make sure that a request can be run here.

        Raises:
            InvalidFilter: `filters` does not follow the grammar.
            InvalidRequest: the web is to be searched, and there is none here.
        """
        CorpusScope(self.collection, request.filters, self.ranking).where()
        self._web_scope(request)

    def answerer(self, request: SearchRequest) -> Answerer:
        """What writes the answer to a request, where that is done apart from the search.

        Raises:
            Exception: the policy cannot be made.
        """
        if self._answerer is not None:
            return self._answerer
        agentic = request.effort is not Effort.MINIMAL
        return answerer_for(self._make_policy(self.collection) if agentic else None, self.collection)

    async def _kept(self, result: SearchResult, pages: Sequence[ReadPage]) -> SearchResult:
        """The result, once the pages that were read are in the collection; what hinders that costs no result."""
        try:
            report = await asyncio.to_thread(keep_pages, self.collection, pages)
        except Exception as error:
            logger.exception("pages could not be kept")
            warning = f"the pages that were read could not be kept: {type(error).__name__}: {error}"
            return replace(result, warnings=(*result.warnings, warning))
        refused = tuple(f"{refusal.id} was not kept: {refusal.reason}" for refusal in report.refused)
        return replace(result, notices=(*result.notices, *refused))

    def _web_scope(self, request: SearchRequest) -> WebScope | None:
        """The web as this search sees it; None if it is not to look there."""
        if Source.WEB not in request.sources:
            return None
        if self._web is None:
            raise InvalidRequest(
                "no web provider is configured: leave web out of sources, or name a provider (web_providers)",
                param="sources",
            )
        scope = WebScope(self._web, self.collection, load_chunker(CHUNKER_VERSION))
        scope.learn(request.query)
        return scope

    def _surroundings(
        self, request: SearchRequest, scope: CorpusScope, web: WebScope | None, limits: Limits
    ) -> Surroundings:
        tools = self._tools(scope)
        if Source.CORPUS not in request.sources:
            tools = tuple(tool for tool in tools if tool.name not in CORPUS_TOOLS)
        if web is not None:
            tools = (*web_tools(web), *tools)
        return Surroundings(
            collection=self.collection,
            tools=tools,
            profile=self.profile,
            counter=self._counter,
            limits=limits,
            make_policy=self._make_policy,
            make_subagent_policy=self._make_subagent_policy,
            swarm=self._swarm,
        )


def _factory(policy: str | PolicyFactory) -> PolicyFactory:
    return make_policy(policy) if isinstance(policy, str) else policy


def _as_rollout(emit: Emit, number: int) -> Emit:
    def told(kind: EventType, data: dict[str, Any]) -> None:
        emit(kind, {**data, "rollout": number})

    return told
