"""The engine's front door: one request in, one result out."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from thresher.context import TokenCounter
from thresher.corpus.collection import Collection
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.engine.events import Event, EventSink, EventType
from thresher.engine.limits import Limits, Stopped
from thresher.engine.loop import Emit, SearchLoop
from thresher.engine.policies import make_policy
from thresher.engine.policy import Policy
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.requests import Effort, RankedEvidence, SearchRequest, SearchResult, StopReason, Usage
from thresher.engine.results import rank_results, ranked_evidence, with_pages
from thresher.engine.session import Session
from thresher.engine.tokenizers import default_counter
from thresher.engine.tools import CorpusScope, corpus_tools
from thresher.engine.trajectory import Trajectory

PolicyFactory = Callable[[Collection], Policy]

_STATUS = {
    StopReason.FINISHED: "completed",
    StopReason.NO_NEW_EVIDENCE: "completed",
    StopReason.ERROR: "failed",
}
_ENDINGS = {
    StopReason.NO_NEW_EVIDENCE: "stopped since several turns in a row brought nothing new",
    StopReason.BUDGET_TOKENS: "stopped since the context was full; raise max_tokens to go on longer",
    StopReason.BUDGET_TURNS: "stopped at the turn limit; raise max_turns or effort to go on longer",
    StopReason.DEADLINE: "stopped at the deadline; these are the results so far",
    StopReason.CANCELLED: "cancelled; these are the results so far",
    StopReason.ERROR: "an error ended the search; these are the results so far",
}


class SearchEngine:
    """Searches one collection with one kind of policy. Safe to share between concurrent searches."""

    def __init__(
        self,
        collection: Collection,
        policy: str | PolicyFactory = "builtin",
        *,
        profile: Profile = DEFAULT,
        counter: TokenCounter | None = None,
        ranking: Ranking = PLAIN,
    ) -> None:
        self.collection = collection
        self.ranking = ranking
        self.profile = profile
        self._counter = counter
        self._make_policy: PolicyFactory = make_policy(policy) if isinstance(policy, str) else policy

    async def search(
        self,
        request: SearchRequest,
        *,
        on_event: EventSink | None = None,
        cancel: asyncio.Event | None = None,
    ) -> SearchResult:
        """Run a search.

        Limits, cancellation and a failing policy end it with what was found so far; only a request that cannot be
        run at all raises, or a policy that cannot be made.

        Raises:
            InvalidFilter: `filters` does not follow the grammar.
            InvalidRequest: the question alone fills the context.
            CorpusError: at effort `minimal`, when the one search fails.
        """
        search_id = f"search_{uuid.uuid4().hex[:16]}"

        def emit(kind: EventType, data: dict[str, Any]) -> None:
            if on_event is not None:
                on_event(Event(kind, {"search_id": search_id, **data}))

        limits = Limits.of(request.deadline_s, cancel)
        scope = CorpusScope(self.collection, request.filters, self.ranking)
        scope.where()  # a filter that cannot be parsed is the caller's error, before anything runs
        emit(EventType.SEARCH_CREATED, {"query": request.query, "effort": str(request.effort)})
        try:
            if request.effort is Effort.MINIMAL:
                result = await self._search_once(search_id, request, scope, limits)
            else:
                result = await self._search_agentically(search_id, request, scope, limits, emit)
        except Exception as error:
            emit(EventType.SEARCH_FAILED, {"status": "failed", "message": str(error)})
            raise
        for position, evidence in enumerate(result.results, 1):
            emit(
                EventType.RESULT_ADDED,
                {"rank": position, "id": evidence.id, "document_id": evidence.document_id, "title": evidence.title},
            )
        ending = EventType.SEARCH_FAILED if result.status == "failed" else EventType.SEARCH_COMPLETED
        emit(ending, {"status": result.status, "stop_reason": str(result.stop_reason), "sufficient": result.sufficient})
        return result

    async def _search_once(
        self, search_id: str, request: SearchRequest, scope: CorpusScope, limits: Limits
    ) -> SearchResult:
        """One hybrid search, without a policy."""
        started = time.perf_counter()

        warnings: list[str] = []

        def search() -> tuple[RankedEvidence, ...]:
            found = scope.search(request.query, limit=request.max_results, warn=warnings.append)
            evidence = [item.as_evidence(f"c{n}", query=request.query, turn=0) for n, item in enumerate(found, 1)]
            return with_pages(tuple(ranked_evidence(item, item.score) for item in evidence), self.collection)

        reason = StopReason.FINISHED
        results: tuple[RankedEvidence, ...] = ()
        try:
            results = await limits.within(asyncio.to_thread(search))
        except Stopped as stop:
            reason = stop.reason
        return SearchResult(
            id=search_id,
            query=request.query,
            status=_STATUS.get(reason, "partial"),
            results=results,
            stop_reason=reason,
            sufficient=None,
            justification=None,
            missing=(),
            usage=Usage(searches=1, chunks_shown=len(results), seconds=time.perf_counter() - started),
            warnings=tuple(dict.fromkeys(warnings)),
            notices=(_ENDINGS[reason],) if reason in _ENDINGS else (),
        )

    async def _search_agentically(
        self, search_id: str, request: SearchRequest, scope: CorpusScope, limits: Limits, emit: Emit
    ) -> SearchResult:
        started, started_at = time.perf_counter(), datetime.now(UTC)
        counter = await asyncio.to_thread(default_counter) if self._counter is None else self._counter
        tools = corpus_tools(scope)
        session = Session(request, profile=self.profile, tools=tools, counter=counter)
        policy = self._make_policy(self.collection)
        loop = SearchLoop(session, policy, tools, limits=limits, emit=emit)
        reason = await loop.run()
        if reason in (StopReason.FINISHED, StopReason.NO_NEW_EVIDENCE) and session.could_not_search:
            reason, loop.error = StopReason.ERROR, session.could_not_search
        results = await asyncio.to_thread(with_pages, rank_results(session), self.collection)
        finish = session.finish
        notices = [_ENDINGS[reason]] if reason in _ENDINGS else []
        if finish is not None and len(finish.evidence_ids) > len(results):
            notices.append(f"{len(finish.evidence_ids) - len(results)} results beyond max_results were left out")
        trajectory = Trajectory(
            id=search_id,
            question=request.query,
            policy=policy.name,
            profile=self.profile.name,
            budget=asdict(session.budget),
            started_at=started_at.isoformat(timespec="milliseconds"),
            opening=session.opening,
            turns=tuple(session.turns),
            evidence=tuple(session.store),
            live=session.live,
            returned=tuple(result.id for result in results),
            stop_reason=str(reason),
            sufficient=None if finish is None or loop.error else finish.sufficient,
            justification=None if finish is None or loop.error else finish.justification,
            error=loop.error,
        )
        return SearchResult(
            id=search_id,
            query=request.query,
            status=_STATUS.get(reason, "partial"),
            results=results,
            stop_reason=reason,
            sufficient=trajectory.sufficient,
            justification=trajectory.justification,
            missing=() if finish is None or loop.error else finish.missing,
            usage=Usage(
                **asdict(session.tally),
                turns=len(session.turns),
                chunks_shown=len(session.store),
                chunks_pruned=len(trajectory.pruned),
                seconds=time.perf_counter() - started,
            ),
            warnings=tuple(dict.fromkeys([*session.warnings, *([loop.error] if loop.error else [])])),
            notices=tuple(notices),
            trajectory=trajectory,
        )
