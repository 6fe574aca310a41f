"""What an agent did, as it is returned: its trajectory, what it cost, and the result of the search."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace

from thresher.context import Evidence
from thresher.engine.agent import Agent
from thresher.engine.requests import RankedEvidence, SearchResult, StopReason, Usage
from thresher.engine.trajectory import Trajectory

STATUS = {
    StopReason.FINISHED: "completed",
    StopReason.NO_NEW_EVIDENCE: "completed",
    StopReason.ERROR: "failed",
}
"""How a search that ended so is called; `partial` for every other reason."""

ENDINGS = {
    StopReason.NO_NEW_EVIDENCE: "stopped since several turns in a row brought nothing new",
    StopReason.BUDGET_TOKENS: "stopped since the context was full; raise max_tokens to go on longer",
    StopReason.BUDGET_TURNS: "stopped at the turn limit; raise max_turns or effort to go on longer",
    StopReason.DEADLINE: "stopped at the deadline; these are the results so far",
    StopReason.CANCELLED: "cancelled; these are the results so far",
    StopReason.ERROR: "an error ended the search; these are the results so far",
}

_LARGEST = frozenset({"peak_context_tokens", "seconds", "critical_steps"})
"""Of usages that ran at once these are not added up."""


def trajectory_of(agent: Agent, returned: Iterable[str]) -> Trajectory:
    """The search of an agent as data, its sub-agents' below it."""
    session, finish = agent.session, None if agent.error else agent.session.finish
    adopted = sorted(agent.swarm.adopted) if agent.swarm is not None else []
    return Trajectory(
        id=agent.id,
        question=agent.task,
        policy=agent.policy.name,
        profile=session.profile.name,
        budget=asdict(session.budget),
        started_at=agent.started_at.isoformat(timespec="milliseconds"),
        opening=session.opening,
        turns=tuple(session.turns),
        evidence=tuple(session.store),
        live=(*session.live, *adopted),  # never shown, so not pruned either
        returned=tuple(returned),
        stop_reason=str(agent.reason or StopReason.CANCELLED),
        sufficient=None if finish is None else finish.sufficient,
        justification=None if finish is None else finish.justification,
        error=agent.error,
        error_code=agent.error_code,
        strategy=str(agent.session.request.strategy),
        subagents=tuple(trajectory_of(sub, (e.id for e in sub.returned)) for sub in agent.subagents),
    )


def trajectory_over(
    parts: Sequence[Trajectory],
    *,
    id: str,
    question: str,
    results: Sequence[RankedEvidence],
    evidence: tuple[Evidence, ...],
    reason: StopReason,
    sufficient: bool | None,
    justification: str | None,
) -> Trajectory:
    """The trajectory of a search that was made of others, at least one: no turns of its own, theirs below it.

    `evidence` is all that they were shown, under ids of this search. None of it counts as pruned: that is told by the
    parts.
    """
    first = parts[0]
    return Trajectory(
        id=id,
        question=question,
        policy=first.policy,
        profile=first.profile,
        budget=first.budget,
        started_at=min(part.started_at for part in parts),
        opening=(),
        turns=(),
        evidence=evidence,
        live=tuple(item.id for item in evidence),
        returned=tuple(item.id for item in results),
        stop_reason=str(reason),
        sufficient=sufficient,
        justification=justification,
        error="; ".join(dict.fromkeys(part.error for part in parts if part.error)) or None,
        strategy=first.strategy,
        subagents=tuple(parts),
    )


def usage_of(agent: Agent, results: Sequence[RankedEvidence] = ()) -> Usage:
    """What an agent and its sub-agents cost; `results` say whose evidence was of use."""
    session = agent.session
    adopted = agent.swarm.adopted if agent.swarm is not None else frozenset[str]()
    live = set(session.live)
    own = Usage(
        **asdict(session.tally),
        turns=len(session.turns),
        chunks_shown=len(session.store) - len(adopted),
        chunks_pruned=sum(e.id not in live and e.id not in adopted for e in session.store),
        critical_steps=agent.critical_steps,
    )
    whole = together([own, *(usage_of(sub) for sub in agent.subagents)])
    useful = {way for result in results if result.agent for way in ways(result.agent)}
    return replace(
        whole,
        critical_steps=agent.critical_steps,
        seconds=agent.seconds,
        subagents=len({sub.path for sub in _below(agent)}),
        useful_subagents=len(useful),
    )


def together(usages: Sequence[Usage]) -> Usage:
    """The cost of searches that ran at once: added up, but for time, critical steps and the longest context."""
    totals = {
        field.name: (max if field.name in _LARGEST else sum)(getattr(usage, field.name) for usage in usages)
        for field in fields(Usage)
    }
    return Usage(**totals)


def result_of(agent: Agent, query: str, results: tuple[RankedEvidence, ...], *, started: float) -> SearchResult:
    """The result of a search by one agent; `started` is a `time.perf_counter()` value."""
    session, reason, error = agent.session, agent.reason or StopReason.CANCELLED, agent.error
    finish = None if error else session.finish
    notices = [ENDINGS[reason]] if reason in ENDINGS else []
    if session.finish is not None and len(session.finish.evidence_ids) > len(results):
        left_out = len(session.finish.evidence_ids) - len(results)
        notices.append(f"{left_out} results beyond max_results were left out")
    trajectory = trajectory_of(agent, (result.id for result in results))
    return SearchResult(
        id=agent.id,
        query=query,
        status=STATUS.get(reason, "partial"),
        results=results,
        stop_reason=reason,
        sufficient=trajectory.sufficient,
        justification=trajectory.justification,
        missing=() if finish is None else finish.missing,
        usage=replace(usage_of(agent, results), seconds=time.perf_counter() - started),
        warnings=tuple(dict.fromkeys([*session.warnings, *([error] if error else [])])),
        notices=tuple(notices),
        trajectory=trajectory,
    )


def _below(agent: Agent) -> Iterable[Agent]:
    for sub in agent.subagents:
        yield sub
        yield from _below(sub)


def ways(path: str) -> Iterable[str]:
    """`alpha/beta` came by `alpha` too."""
    parts = path.split("/")
    return ("/".join(parts[: number + 1]) for number in range(len(parts)))
