"""What decides the next turn, and what it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from thresher.context import Budget, Call, Evidence, EvidenceStore, Prompt, Receipt
from thresher.engine.requests import Effort


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Outcome(StrEnum):
    """How a call ended. "Nothing found" and "could not search" are different results."""

    OK = "ok"
    EMPTY = "empty"
    FAILED = "failed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a query ranked a chunk: evidence id, place in the full ranking from 0, and scores."""

    evidence_id: str
    rank: int
    score: float
    dense: float | None
    bm25: float | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What came back from one call.

    Attributes:
        shown: evidence ids that the call added to the context; `repeats`: those it found that were there already.
        sightings: every chunk in the evidence store that the call's ranking held, shown now or before.
        news: whether it brought a chunk never shown before that ranks among the first ten of its query.
    """

    call: Call
    outcome: Outcome
    message: str
    shown: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    receipt: Receipt | None = None
    news: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """All a policy may look at when it decides.

    Attributes:
        prompt: what a model is sent; typed fields below carry the same facts for policies that need no model.
        turn: from 1.
        turns_left: including this one.
        max_reply_tokens: room for the policy's own words and calls.
        live: evidence now in the context, in order; `live_tokens` says what each takes.
        store: all evidence ever shown; read-only by convention.
        observations: what the calls of the turn before brought.
    """

    question: str
    effort: Effort
    turn: int
    turns_left: int
    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    budget: Budget
    max_reply_tokens: int
    max_results: int
    live: tuple[Evidence, ...]
    live_tokens: Mapping[str, int]
    store: EvidenceStore
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call as a policy asks for it: the engine gives it an id. `arguments` is JSON text, or an object."""

    name: str
    arguments: str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants done in this turn."""

    calls: tuple[ToolUse, ...]
    reasoning: str = ""


class Policy(Protocol):
    """Decides turn by turn. One instance serves one search, so it may keep state between turns."""

    @property
    def name(self) -> str:
        """How traces call it."""

    async def decide(self, view: View) -> Decision:
        """The next turn. Raises `PolicyError` when it cannot decide."""
