"""Best of n: several searches of one question, beside each other, whose ranked lists are fused by rank."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from thresher.context import Evidence
from thresher.engine.fusion import fuse
from thresher.engine.reporting import together, trajectory_over, ways
from thresher.engine.requests import RankedEvidence, SearchRequest, SearchResult, StopReason
from thresher.engine.trajectory import Trajectory

RolloutOf = Callable[[int], Awaitable[SearchResult]]
"""Runs the rollout of a number from 1."""

ROLLOUT = "rollout-"
"""Begins the provenance of a passage: `rollout-2`, or `rollout-2/alpha` if a sub-agent of it found it."""

Chunk = tuple[str, str]


async def best_of(search_id: str, request: SearchRequest, rollout: RolloutOf) -> SearchResult:
    """`request.rollouts` rollouts at once, as one result.

    A rollout that cannot even start takes no other with it.

    Raises:
        Exception: what the first of them raised, if none could be run.
    """
    ended = await asyncio.gather(*(rollout(n) for n in range(1, request.rollouts + 1)), return_exceptions=True)
    results = [result for result in ended if isinstance(result, SearchResult)]
    broken = [error for error in ended if isinstance(error, BaseException)]
    for error in broken:
        if not results or not isinstance(error, Exception):
            raise error
    warnings = [f"a rollout could not be run: {type(error).__name__}: {error}" for error in broken]
    return fused_result(search_id, request, results, warnings)


def fused_result(
    search_id: str, request: SearchRequest, results: Sequence[SearchResult], warnings: Sequence[str] = ()
) -> SearchResult:
    """One result of several rollouts.

    Lists are fused by RRF (k = 60) by chunk, under ids of its own; costs are added up; whether the evidence suffices is
    decided by a majority of those that said so, a tie being no. Its trajectory holds theirs.
    """
    sufficient = majority([result.sufficient for result in results])
    fused = _fused(results, request.max_results)
    evidence = _everything(fused, [result.trajectory for result in results])
    # The words are those of a rollout that agrees with the verdict; its list is nearest to the fused one.
    kept = {_chunk(item) for item in fused}
    speaker = max(
        (result for result in results if result.sufficient is sufficient),
        key=lambda result: sum(_chunk(item) in kept for item in result.results),
        default=results[0],
    )
    reason = reason_of(results)
    usage = together([result.usage for result in results])
    trajectories = tuple(result.trajectory for result in results if result.trajectory is not None)
    return SearchResult(
        id=search_id,
        query=request.query,
        status=status_of(results),
        results=fused,
        stop_reason=reason,
        sufficient=sufficient,
        justification=speaker.justification,
        missing=() if sufficient else tuple(dict.fromkeys(part for result in results for part in result.missing)),
        usage=replace(usage, useful_subagents=_useful_subagents(fused)),
        warnings=tuple(dict.fromkeys([*warnings, *(w for result in results for w in result.warnings)])),
        notices=tuple(dict.fromkeys(notice for result in results for notice in result.notices)),
        trajectory=trajectory_over(
            trajectories,
            id=search_id,
            question=request.query,
            results=fused,
            evidence=evidence,
            reason=reason,
            sufficient=sufficient,
            justification=speaker.justification,
        ),
    )


def majority(verdicts: Sequence[bool | None]) -> bool | None:
    """What most of those who said anything said; a tie is False, and nothing said is None."""
    said = Counter(verdict for verdict in verdicts if verdict is not None)
    return said[True] > said[False] if said else None


def _fused(results: Sequence[SearchResult], limit: int) -> tuple[RankedEvidence, ...]:
    """The fused list under ids of its own; each passage as the rollout has it that ranks it best."""
    rankings = [[_chunk(item) for item in result.results] for result in results]
    best: dict[Chunk, tuple[int, int]] = {}
    for number, ranking in enumerate(rankings):
        for place, chunk in enumerate(ranking):
            best[chunk] = min(best.get(chunk, (place, number)), (place, number))
    items: list[RankedEvidence] = []
    for chunk, score in fuse(rankings)[:limit]:
        place, number = best[chunk]
        item = results[number].results[place]
        own_id = f"c{len(items) + 1}"
        spans = tuple(replace(span, evidence_id=own_id) for span in item.spans)
        items.append(replace(item, id=own_id, score=score, agent=_by(number, item.agent), spans=spans))
    return tuple(items)


def _everything(fused: Sequence[RankedEvidence], trajectories: Sequence[Trajectory | None]) -> tuple[Evidence, ...]:
    """All that any rollout was shown, once each: the fused results first, under their ids."""
    ids = {_chunk(item): item.id for item in fused}
    agents = {_chunk(item): item.agent for item in fused}
    found: dict[Chunk, Evidence] = {}
    for number, trajectory in enumerate(trajectories):
        for evidence in trajectory.evidence if trajectory is not None else ():
            chunk = _chunk(evidence)
            own_id = ids.setdefault(chunk, f"c{len(ids) + 1}")
            agent = agents.get(chunk) or _by(number, evidence.agent)
            found.setdefault(chunk, replace(evidence, id=own_id, agent=agent))
    order = {own_id: place for place, own_id in enumerate(ids.values())}
    return tuple(sorted(found.values(), key=lambda evidence: order[evidence.id]))


def _chunk(item: RankedEvidence | Evidence) -> Chunk:
    return item.source, item.chunk_id


def _by(number: int, agent: str) -> str:
    """Provenance in rollout `number` (from 0)."""
    return f"{ROLLOUT}{number + 1}" + (f"/{agent}" if agent else "")


def _useful_subagents(fused: Sequence[RankedEvidence]) -> int:
    """Sub-agents of rollouts whose evidence is among the results."""
    return len({way for item in fused for way in ways(item.agent) if "/" in way})


def reason_of(results: Sequence[SearchResult]) -> StopReason:
    """Why most of them ended; what ended the earliest of those decides a tie."""
    return Counter(result.stop_reason for result in results).most_common(1)[0][0]


def status_of(results: Sequence[SearchResult]) -> str:
    """`completed` if all were, `failed` if all did, else `partial`."""
    each = {result.status for result in results}
    return each.pop() if len(each) == 1 else "partial"
