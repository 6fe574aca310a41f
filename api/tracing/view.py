"""A trajectory as people look at it: turns with their calls, edits, tokens and costs, and what became of passages.

Plain data with no markup in it. All text is foreign: whoever shows it must clean or escape it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from thresher.api.tracing.accounting import Account, account
from thresher.api.tracing.cost import Cost

if TYPE_CHECKING:
    from thresher.context import Evidence
    from thresher.engine.requests import Answer
    from thresher.engine.trajectory import ObservationRecord, Trajectory, TurnRecord

Fate = Literal["returned", "kept", "pruned"]
FATES: tuple[Fate, ...] = ("returned", "kept", "pruned")


@dataclass(frozen=True, slots=True)
class Quote:
    """A stretch of a passage: `start` and `end` are character offsets in the passage's own text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Something that was shown, with what became of it by the end of the search.

    Attributes:
        place: its rank among what was returned, from 1; None if it was not.
        quotes: stretches that were cited, in order, without overlaps.
    """

    evidence: Evidence
    fate: Fate
    place: int | None = None
    quotes: tuple[Quote, ...] = ()


@dataclass(frozen=True, slots=True)
class CallView:
    """A call and what came back.

    Attributes:
        query: what was looked for, of calls that look for something; `arguments` are the others, as JSON text.
        shown: passages that it added to the context.
        receipt: what an edit did.
        fetched: addresses of the web that it asked for, each with what came of it.
    """

    id: str
    name: str
    query: str | None
    arguments: Mapping[str, Any] | str
    outcome: str
    message: str
    shown: tuple[Passage, ...] = ()
    repeats: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    fetched: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn. `engine_edits` are receipts of what the engine took out by itself: batches, and by its strategy."""

    index: int
    reasoning: str
    calls: tuple[CallView, ...]
    engine_edits: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]
    account: Account


@dataclass(frozen=True, slots=True)
class Cited:
    """A citation of the answer.

    Attributes:
        quote: where it stands in the passage; None if the passage does not hold it.
    """

    evidence_id: str
    text: str
    quote: Quote | None


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer in words, or why there is none."""

    text: str
    citations: tuple[Cited, ...]
    withheld_reason: str | None
    refused_citations: int = 0


@dataclass(frozen=True, slots=True)
class TraceView:
    """One search, or one sub-agent or rollout of it.

    Attributes:
        name: how it is called (`agent alpha`, `rollout 2`); "" for the search itself.
        cost: of its own turns; `total_cost` has those of its agents too.
    """

    id: str
    name: str
    question: str
    policy: str
    profile: str
    started_at: str
    budget: Mapping[str, int]
    turns: tuple[TurnView, ...]
    passages: tuple[Passage, ...]
    stop_reason: str
    sufficient: bool | None
    justification: str | None
    error: str | None
    answer: AnswerView | None = None
    agents: tuple[TraceView, ...] = ()
    cost: Cost = field(default_factory=Cost)

    @property
    def total_cost(self) -> Cost:
        """What the search cost with its agents. Those that ran at once are added up, their seconds too."""
        return sum((agent.total_cost for agent in self.agents), self.cost)

    def of(self, fate: Fate) -> tuple[Passage, ...]:
        """Passages with that fate; those that were returned in their order, others as they were found."""
        found = [passage for passage in self.passages if passage.fate == fate]
        return tuple(sorted(found, key=lambda passage: passage.place or 0))

    def all(self) -> Iterator[TraceView]:
        """This search and all its agents, each before its own."""
        yield self
        for agent in self.agents:
            yield from agent.all()


def read_trace(trajectory: Trajectory, given: Answer | None = None, *, name: str = "") -> TraceView:
    """The view of a trajectory, with the answer that was `given` to its question, and of those inside it."""
    answer = None if given is None else _answer(given, trajectory)
    passages = {passage.evidence.id: passage for passage in _passages(trajectory, answer)}
    turns = tuple(_turn(turn, done, passages) for turn, done in zip(trajectory.turns, account(trajectory), strict=True))
    return TraceView(
        id=trajectory.id,
        name=name,
        question=trajectory.question,
        policy=trajectory.policy,
        profile=trajectory.profile,
        started_at=trajectory.started_at,
        budget=trajectory.budget,
        turns=turns,
        passages=tuple(passages.values()),
        stop_reason=trajectory.stop_reason,
        sufficient=trajectory.sufficient,
        justification=trajectory.justification,
        error=trajectory.error,
        answer=answer,
        agents=tuple(read_trace(agent, name=_agent_name(trajectory, agent)) for agent in trajectory.subagents),
        cost=sum((turn.account.cost for turn in turns), Cost()),
    )


def _agent_name(parent: Trajectory, agent: Trajectory) -> str:
    """How an agent is called: its id goes on from its parent's. One without turns is of rollouts or collections."""
    own = agent.id.removeprefix(parent.id).strip("/.:-") or agent.id
    from thresher.engine.trajectory import COLLECTION

    if own.startswith(COLLECTION):
        return f"collection {own.removeprefix(COLLECTION)}"
    return f"agent {own}" if parent.turns else f"rollout {own}"


def _turn(turn: TurnRecord, done: Account, passages: Mapping[str, Passage]) -> TurnView:
    answers = {observation.call_id: observation for observation in turn.observations}
    return TurnView(
        index=turn.index,
        reasoning=turn.reasoning.strip(),
        calls=tuple(_call(c.id, c.name, c.arguments, answers.get(c.id), passages) for c in turn.calls),
        engine_edits=turn.flushed,
        faults=turn.faults,
        account=done,
    )


def _call(
    call_id: str, name: str, text: str, answer: ObservationRecord | None, passages: Mapping[str, Passage]
) -> CallView:
    query, arguments = _arguments(text)
    if answer is None:
        return CallView(call_id, name, query, arguments, "", "the search ended before it was answered")
    return CallView(
        id=call_id,
        name=name,
        query=query,
        arguments=arguments,
        outcome=answer.outcome,
        message=answer.message,
        shown=tuple(passages[evidence_id] for evidence_id in answer.shown if evidence_id in passages),
        repeats=answer.repeats,
        receipt=answer.receipt,
        fetched=tuple((fetched.outcome, fetched.final or fetched.url) for fetched in answer.fetched),
    )


def _arguments(text: str) -> tuple[str | None, Mapping[str, Any] | str]:
    """What a call looks for, and its other arguments; broken ones as they are."""
    try:
        arguments: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None, text
    if not isinstance(arguments, dict):
        return None, text
    for name in ("query", "pattern"):
        if isinstance(arguments.get(name), str):
            return arguments[name], {key: value for key, value in arguments.items() if key != name}
    return None, arguments


def _passages(trajectory: Trajectory, answer: AnswerView | None) -> Iterator[Passage]:
    places = {evidence_id: place for place, evidence_id in enumerate(trajectory.returned, 1)}
    shown = {i for turn in trajectory.turns for observation in turn.observations for i in observation.shown}
    # What an agent brought that was stopped was never in this context, so it did not leave it either.
    pruned = shown.intersection(trajectory.pruned)
    cited: dict[str, list[Quote]] = {}
    for citation in answer.citations if answer else ():
        if citation.quote is not None:
            cited.setdefault(citation.evidence_id, []).append(citation.quote)
    quoted = _finishing_quotes(trajectory)
    for evidence in trajectory.evidence:
        fate: Fate = "returned" if evidence.id in places else "pruned" if evidence.id in pruned else "kept"
        quotes = cited.get(evidence.id, [])
        offset = evidence.text.find(quoted.get(evidence.id, "")) if evidence.id in quoted else -1
        if offset >= 0:
            quotes = [*quotes, Quote(offset, offset + len(quoted[evidence.id]))]
        yield Passage(evidence, fate, places.get(evidence.id), merged(quotes))


def _finishing_quotes(trajectory: Trajectory) -> dict[str, str]:
    """The quotes that a policy named when it finished, by evidence id."""
    for turn in reversed(trajectory.turns):
        for call in turn.calls:
            if call.name == "finish":
                _, arguments = _arguments(call.arguments)
                quotes = arguments.get("quotes") if isinstance(arguments, Mapping) else None
                if isinstance(quotes, dict):
                    return {key: quote for key, quote in quotes.items() if isinstance(quote, str) and quote}
    return {}


def merged(quotes: Sequence[Quote]) -> tuple[Quote, ...]:
    """The same stretches in order, those that touch or overlap made one."""
    joined: list[Quote] = []
    for quote in sorted(quotes, key=lambda quote: (quote.start, quote.end)):
        if joined and quote.start <= joined[-1].end:
            joined[-1] = Quote(joined[-1].start, max(joined[-1].end, quote.end))
        else:
            joined.append(quote)
    return tuple(joined)


def _answer(answer: Answer, trajectory: Trajectory) -> AnswerView:
    """The answer, with each citation found again in its passage: what the page marks has been checked here."""
    evidence = {e.id: e for e in trajectory.evidence}
    cited = []
    for citation in answer.citations:
        source = evidence.get(citation.evidence_id)
        quote = None
        if source is not None:
            start, end = citation.start - source.start, citation.end - source.start
            if 0 <= start < end and source.text[start:end] == citation.text:
                quote = Quote(start, end)
        cited.append(Cited(citation.evidence_id, citation.text, quote))
    reason = None if answer.withheld_reason is None else answer.withheld_reason.removeprefix("no answer: ")
    return AnswerView(answer.text, tuple(cited), reason, answer.refused_citations)
