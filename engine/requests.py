"""What goes into a search and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from thresher.context import Budget, Citation
from thresher.engine.errors import InvalidRequest
from thresher.engine.trajectory import Trajectory

MAX_QUERY_CHARACTERS = 8_000
MIN_CONTEXT_TOKENS = 4_096
MAX_CONTEXT_TOKENS = 2_000_000
MAX_ROLLOUTS = 16

ANY_QUESTION = "?"
"""Stands for the query in a request that only says how to search."""


class Effort(StrEnum):
    """How hard to search. `minimal` is one hybrid search without a policy."""

    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Source(StrEnum):
    """Where a search looks."""

    CORPUS = "corpus"
    WEB = "web"


class StopReason(StrEnum):
    """Why a search ended."""

    FINISHED = "finished"
    NO_NEW_EVIDENCE = "no_new_evidence"
    BUDGET_TOKENS = "budget_tokens"
    BUDGET_TURNS = "budget_turns"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    ERROR = "error"


class Edits(StrEnum):
    """When prunes are applied: at once, or in batches that break a server's prefix cache less often."""

    IMMEDIATE = "immediate"
    BATCHED = "batched"


class Strategy(StrEnum):
    """How the context is kept small (see `thresher.engine.strategies`).

    `prune`: the policy edits, with every edit tool. `fold`: past the soft limit it must write a note that replaces all
    turns before. `mask-old`: past it the engine takes the chunks of old turns out. `discard-all`: past it the engine
    takes all turns out. `none`: nothing is ever taken out.
    """

    PRUNE = "prune"
    FOLD = "fold"
    MASK_OLD = "mask-old"
    DISCARD_ALL = "discard-all"
    NONE = "none"


TURNS = {Effort.LOW: 3, Effort.MEDIUM: 8, Effort.HIGH: 32}
"""The most turns at each effort, unless the request says otherwise."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question for the engine.

    Attributes:
        query: the question, 1 to 8,000 characters.
        max_results: length of the ranked list at most, 1..100.
        max_turns: cap on model calls; None takes the effort's own.
        max_tokens: size of the context, 4,096..2,000,000; None is the engine's budget (32,768 by default).
        edits: whether prunes are applied at once or in batches.
        strategy: how the context is kept small.
        deadline_s: wall-clock limit in seconds; what was found by then is returned.
        filters: metadata filter that every corpus tool call of this search is held to.
        rollouts: independent searches of the question, 1..16, that run at once; their lists are fused by rank.
        include_answer: whether an answer is written from the evidence, with checked citations.
        swarm: whether the policy may hand parts of the question to sub-agents.
        sources: where to look: the corpus, the web, or both; the web needs an engine that has one.
        max_critical_steps: cap on turns one after another, those of sub-agents that run at once counted once; None
            leaves it to the turn limits.

    Raises:
        InvalidRequest: a field is out of its bounds, or two contradict each other; `param` names it.
    """

    query: str
    effort: Effort = Effort.MEDIUM
    max_results: int = 10
    max_turns: int | None = None
    max_tokens: int | None = None
    deadline_s: float | None = None
    filters: Mapping[str, Any] | None = None
    edits: Edits = Edits.IMMEDIATE
    strategy: Strategy = Strategy.PRUNE
    rollouts: int = 1
    include_answer: bool = False
    swarm: bool = False
    max_critical_steps: int | None = None
    sources: tuple[Source, ...] = (Source.CORPUS,)

    def __post_init__(self) -> None:
        if any("\ud800" <= character <= "\udfff" for character in self.query):
            raise InvalidRequest("the query is not valid Unicode: it holds lone surrogates", param="query")
        if not self.query.strip():
            raise InvalidRequest("the query is empty; ask a question or give search terms", param="query")
        if len(self.query) > MAX_QUERY_CHARACTERS:
            raise InvalidRequest(
                f"the query has {len(self.query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", param="query"
            )
        if not 1 <= self.max_results <= 100:
            raise InvalidRequest(f"max_results must lie in 1..100, got {self.max_results}", param="max_results")
        if self.max_turns is not None and self.max_turns < 1:
            raise InvalidRequest(f"max_turns must be at least 1, got {self.max_turns}", param="max_turns")
        if self.max_tokens is not None and not MIN_CONTEXT_TOKENS <= self.max_tokens <= MAX_CONTEXT_TOKENS:
            raise InvalidRequest(
                f"max_tokens must lie in {MIN_CONTEXT_TOKENS:,}..{MAX_CONTEXT_TOKENS:,}, got {self.max_tokens:,}",
                param="max_tokens",
            )
        if self.deadline_s is not None and not self.deadline_s > 0:  # also refuses NaN
            raise InvalidRequest(f"deadline_s must be positive, got {self.deadline_s}", param="deadline_s")
        if not 1 <= self.rollouts <= MAX_ROLLOUTS:
            raise InvalidRequest(f"rollouts must lie in 1..{MAX_ROLLOUTS}, got {self.rollouts}", param="rollouts")
        if self.max_critical_steps is not None and self.max_critical_steps < 1:
            raise InvalidRequest(
                f"max_critical_steps must be at least 1, got {self.max_critical_steps}", param="max_critical_steps"
            )
        if self.edits is Edits.BATCHED and self.strategy is Strategy.NONE:
            raise InvalidRequest(
                "strategy none takes nothing out of the context, so there are no edits to batch: leave edits out, or "
                "take another strategy",
                param="edits",
            )
        if not self.sources or len(set(self.sources)) != len(self.sources):
            raise InvalidRequest("sources must name corpus, web or both, each once", param="sources")
        if self.effort is Effort.MINIMAL and (self.swarm or self.rollouts > 1):
            raise InvalidRequest(
                "effort minimal is one search without a policy: it has neither a swarm nor rollouts; take effort low",
                param="swarm" if self.swarm else "rollouts",
            )

    @property
    def turns(self) -> int:
        """The most turns of one agent that this request allows."""
        turns = self.max_turns if self.max_turns is not None else TURNS.get(self.effort, 1)
        return turns if self.max_critical_steps is None else min(turns, self.max_critical_steps)

    def budget(self, default: Budget) -> Budget:
        """The token budget of this request."""
        return default if self.max_tokens is None else default.scaled(self.max_tokens)


@dataclass(frozen=True, slots=True)
class RankedEvidence:
    """One returned passage.

    Attributes:
        id: evidence id within this search (`c7`).
        start, end: character offsets of `text` in the document.
        score: 1/rank of the policy's order for a finished search, else the score of the query that found it.
        rerank: the reranker's own score for that query; None if none read it.
        duplicates: chunk ids that were left out, because nearly all they say stands in this one.
        spans: quotes in it that carry the answer, each checked against the stored text.
        source: `corpus` or `web`.
        page: for a paged document (PDF), the page that the passage starts on, from 1.
        agent: the sub-agent, or the rollout, that brought it; "" for the search itself.
        collection: the one that it stands in, in a search of several (`thresher.engine.federated`); else "".
    """

    id: str
    chunk_id: str
    document_id: str
    title: str
    uri: str
    text: str
    start: int
    end: int
    score: float
    spans: tuple[Citation, ...] = ()
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    source: str = "corpus"
    page: int | None = None
    rerank: float | None = None
    duplicates: tuple[str, ...] = ()
    agent: str = ""
    collection: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer made of the evidence, or the reason why there is none.

    Attributes:
        text: "" if it was withheld.
        citations: quotes that carry it, each checked against the evidence store; never empty beside a text.
        withheld_reason: why there is no text; None if there is.
        refused_citations: quotes that were dropped, since no such evidence was shown or it does not hold the words.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    withheld_reason: str | None = None
    refused_citations: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a search cost, its sub-agents, rollouts and answer included.

    Attributes:
        turns: of all agents together.
        calls: calls that the policy made; `searches`: those of them that searched, refused ones left out.
        prompt_tokens: sum of the prompts of all turns.
        completion_tokens: tokens the policy wrote.
        peak_context_tokens: the longest context.
        reprefill_tokens: tokens that edits made a prefix cache compute again, counted once a turn.
        chunks_shown: distinct passages shown; `chunks_pruned`: those of them that are not in the context at the end.
        recoveries: calls that could not be run as written: repaired, refused with an error observation, or dropped.
        seconds: wall-clock time of the whole search, its answer included.
        model_seconds: time spent in the policy, added up over agents that ran at once; in a search of one agent the
            rest of `seconds` is tools and the loop itself.
        critical_steps: turns one after another: Σ over the turns of the search of 1 + the most that a sub-agent of
            that turn took. Rollouts run beside each other: the longest counts.
        subagents: sub-agents that were given a task.
        useful_subagents: those of them whose evidence is among the results.
    """

    turns: int = 0
    calls: int = 0
    searches: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    peak_context_tokens: int = 0
    reprefill_tokens: int = 0
    chunks_shown: int = 0
    chunks_pruned: int = 0
    recoveries: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    critical_steps: int = 0
    subagents: int = 0
    useful_subagents: int = 0

    @property
    def speedup(self) -> float:
        """Turns that were taken for each turn that was waited for: 1 without sub-agents and rollouts."""
        return self.turns / self.critical_steps if self.critical_steps else 1.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of the engine: ranked evidence and an honest account of how it ended.

    Attributes:
        status: `completed` (the policy or the no-news rule ended it), `partial` (a limit ended it), `failed`.
        sufficient: the policy's own word on whether the evidence covers the question; None if it never said.
        missing: parts of the question that no evidence covers, as the policy put them.
        warnings: what went wrong without ending the search (a tool that could not search, ids never shown).
        notices: what the caller should know (results were cut, limits were reached).
        trajectory: the whole search as data; None at effort `minimal`.
        answer: None if none was asked for.
    """

    id: str
    query: str
    status: str
    results: tuple[RankedEvidence, ...]
    stop_reason: StopReason
    sufficient: bool | None
    justification: str | None
    missing: tuple[str, ...]
    usage: Usage
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    trajectory: Trajectory | None = None
    answer: Answer | None = None
