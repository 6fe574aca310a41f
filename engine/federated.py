"""One question to several collections: a search of each, beside each other, whose ranked lists are fused by rank."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thresher.context import Evidence
from thresher.engine.answering import answered
from thresher.engine.best_of import reason_of, status_of
from thresher.engine.errors import InvalidRequest
from thresher.engine.events import Event, EventSink, EventType
from thresher.engine.fusion import fuse
from thresher.engine.limits import Limits
from thresher.engine.reporting import together, trajectory_over
from thresher.engine.requests import RankedEvidence, SearchRequest, SearchResult, Source
from thresher.engine.search import SearchEngine, new_search_id, tell_result
from thresher.engine.trajectory import COLLECTION

_OWN_WORDS = frozenset(
    {
        EventType.SEARCH_CREATED,
        EventType.RESULT_ADDED,
        EventType.ANSWER_WRITTEN,
        EventType.SEARCH_COMPLETED,
        EventType.SEARCH_FAILED,
    }
)
"""Kinds of events that are told of the whole search only."""

Explain = Callable[[BaseException], str]
"""Says what went wrong in one collection, in words for the caller."""

Place = tuple[str, str, str]
"""Collection, source and chunk: a passage that stands in two collections is two."""


async def federated_search(
    engines: Mapping[str, SearchEngine],
    request: SearchRequest,
    *,
    on_event: EventSink | None = None,
    cancel: asyncio.Event | None = None,
    search_id: str | None = None,
    explain: Explain | None = None,
) -> SearchResult:
    """Search each of `engines`, which go by the names of their collections, with the same request and limits.

    A collection whose search cannot be run is a warning, unless none can be. Results have ids of their own (`c1`, `c2`,
    …) and the `collection` that they stand in; events of one collection's search carry its name as `collection`, and
    passages there go by that search's own ids. The answer is written from the fused list. The evidence suffices if
    that of any collection does. The trajectory holds those of the searches.

    Raises:
        InvalidRequest: there are no engines, or one of them cannot run the request (see `SearchEngine.check`).
        Exception: what the first of them raised, if none could be run.
    """
    own_id = search_id or new_search_id()
    started = time.perf_counter()

    def emit(kind: EventType, data: dict[str, Any]) -> None:
        if on_event is not None:
            on_event(Event(kind, {"search_id": own_id, **data}))

    def telling(name: str) -> EventSink:
        def told(event: Event) -> None:
            if event.type not in _OWN_WORDS:
                emit(event.type, {**event.data, "search_id": own_id, "collection": name})

        return told

    async def one(name: str, engine: SearchEngine) -> SearchResult:
        part = replace(request, include_answer=False, sources=sources[name])
        result = await engine.search(
            part, on_event=telling(name), cancel=cancel, search_id=f"{own_id}/{COLLECTION}{name}"
        )
        items = tuple(replace(item, collection=_stands_in(name, item.source)) for item in result.results)
        return replace(result, results=items)

    if not engines:
        raise InvalidRequest("no collection is named: name those to search", param="collections")
    sources = _shared_out(list(engines), request)
    engines = {name: engine for name, engine in engines.items() if name in sources}
    for name, engine in engines.items():
        engine.check(replace(request, sources=sources[name]))
    limits = Limits.of(request.deadline_s, cancel)
    emit(
        EventType.SEARCH_CREATED,
        {"query": request.query, "effort": str(request.effort), "collections": list(engines)},
    )
    ended = await asyncio.gather(*(one(*item) for item in engines.items()), return_exceptions=True)
    results = {name: done for name, done in zip(engines, ended, strict=True) if isinstance(done, SearchResult)}
    broken = {name: done for name, done in zip(engines, ended, strict=True) if isinstance(done, BaseException)}
    for error in broken.values():
        if not results or not isinstance(error, Exception):
            emit(EventType.SEARCH_FAILED, {"status": "failed", "message": str(error)})
            raise error
    words = explain or _in_words
    warnings = [f"collection {name!r} could not be searched: {words(error)}" for name, error in broken.items()]
    result = _fused(own_id, request, results, warnings)
    if request.include_answer:
        best = next((item.collection for item in result.results if item.collection), next(iter(results)))
        result = await answered(result, engines[best].answerer(request), limits)
    result = replace(result, usage=replace(result.usage, seconds=time.perf_counter() - started))
    tell_result(result, emit)
    return result


def _shared_out(names: Sequence[str], request: SearchRequest) -> dict[str, tuple[Source, ...]]:
    """Where the search of each collection looks. There is one web: one of them searches it for all."""
    first, *others = names
    rest = tuple(source for source in request.sources if source is not Source.WEB)
    return {first: request.sources, **{name: rest for name in others if rest}}


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _fused(
    search_id: str, request: SearchRequest, results: Mapping[str, SearchResult], warnings: Sequence[str]
) -> SearchResult:
    said = [result.sufficient for result in results.values()]
    sufficient = True if True in said else False if False in said else None
    items = ranked_together([result.results for result in results.values()], request.max_results)
    speaker = next((result for result in results.values() if result.sufficient is sufficient), None)
    missing = dict.fromkeys(part for result in results.values() for part in result.missing)
    reason = reason_of(list(results.values()))
    justification = speaker.justification if speaker is not None else None
    parts = [result.trajectory for result in results.values() if result.trajectory is not None]
    trajectory = None
    if parts:  # none has one at effort minimal
        trajectory = trajectory_over(
            parts,
            id=search_id,
            question=request.query,
            results=items,
            evidence=_everything(results, items),
            reason=reason,
            sufficient=sufficient,
            justification=justification,
        )
    return SearchResult(
        id=search_id,
        query=request.query,
        status=status_of(list(results.values())),
        results=items,
        stop_reason=reason,
        sufficient=sufficient,
        justification=justification,
        missing=() if sufficient else tuple(missing),
        usage=together([result.usage for result in results.values()]),
        warnings=(*warnings, *_named(results, "warnings")),
        notices=_named(results, "notices"),
        trajectory=trajectory,
    )


def _named(results: Mapping[str, SearchResult], field: str) -> tuple[str, ...]:
    """What the searches say of themselves, once where all say the same."""
    said = {name: getattr(result, field) for name, result in results.items()}
    of_all = set.intersection(*(set(words) for words in said.values()))
    common = [word for word in next(iter(said.values())) if word in of_all]
    own = [f"{name}: {word}" for name, words in said.items() for word in words if word not in of_all]
    return tuple(dict.fromkeys([*common, *own]))


def ranked_together(lists: Sequence[Sequence[RankedEvidence]], limit: int) -> tuple[RankedEvidence, ...]:
    """Ranked lists of several collections as one, by RRF (k = 60), under ids of its own: `c1`, `c2`, …"""
    found = {_place(item): item for items in lists for item in items}
    ranked = []
    for number, (place, score) in enumerate(fuse([[_place(item) for item in items] for items in lists])[:limit], 1):
        own_id = f"c{number}"
        item = found[place]
        spans = tuple(replace(span, evidence_id=own_id) for span in item.spans)
        ranked.append(replace(item, id=own_id, score=score, spans=spans))
    return tuple(ranked)


def _stands_in(name: str, source: str) -> str:
    """The collection that a passage found by the search of collection `name` stands in; the web is in none."""
    return "" if source == Source.WEB else name


def _place(item: RankedEvidence) -> Place:
    return item.collection, item.source, item.chunk_id


def _everything(results: Mapping[str, SearchResult], items: Sequence[RankedEvidence]) -> tuple[Evidence, ...]:
    """All that any search was shown: the fused results first, under their ids."""
    ids = {_place(item): item.id for item in items}
    found: dict[str, Evidence] = {}
    for name, result in results.items():
        for evidence in result.trajectory.evidence if result.trajectory is not None else ():
            place = (_stands_in(name, evidence.source), evidence.source, evidence.chunk_id)
            own_id = ids.setdefault(place, f"c{len(ids) + 1}")
            by = f"{COLLECTION}{name}" + (f"/{evidence.agent}" if evidence.agent else "")
            found.setdefault(own_id, replace(evidence, id=own_id, agent=by))
    return tuple(found[own_id] for own_id in ids.values() if own_id in found)
