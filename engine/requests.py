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


class Effort(StrEnum):
    """How hard to search. `minimal` is one hybrid search without a policy."""

    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


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
        deadline_s: wall-clock limit in seconds; what was found by then is returned.
        filters: metadata filter that every corpus tool call of this search is held to.
    """

    query: str
    effort: Effort = Effort.MEDIUM
    max_results: int = 10
    max_turns: int | None = None
    max_tokens: int | None = None
    deadline_s: float | None = None
    filters: Mapping[str, Any] | None = None
    edits: Edits = Edits.IMMEDIATE

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

    @property
    def turns(self) -> int:
        """The most turns this request allows."""
        if self.max_turns is not None:
            return self.max_turns
        return TURNS.get(self.effort, 1)

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


@dataclass(frozen=True, slots=True)
class Usage:
    """What a search cost.

    Attributes:
        prompt_tokens: sum of the prompts of all turns.
        completion_tokens: tokens the policy wrote.
        peak_context_tokens: the longest context.
        reprefill_tokens: tokens that edits made a prefix cache compute again, counted once a turn.
        model_seconds: time spent in the policy; the rest of `seconds` is tools and the loop itself.
        recoveries: calls that could not be run as written: repaired, refused with an error observation, or dropped.
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
