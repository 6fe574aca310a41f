"""What decides the next turn, and what it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from thresher.context import Budget, Call, Evidence, EvidenceStore, Prompt, Receipt, Renderer, TokenCounter
from thresher.engine.requests import Effort, Strategy


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Outcome(StrEnum):
    """How a call ended. "Nothing found" and "could not search" are different results.

    `ok`: it ran. `empty`: it looked, and nothing was found. `failed`: it could not look, whoever is at fault.
    `rejected`: it was not run, and the message says how to call instead.
    """

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
class Fetched:
    """One address that was asked for while a call ran.

    Attributes:
        url: as it was asked for; `final`: where the page is, after redirects; "" if none came.
        outcome: `read`, or why not (see `thresher.corpus.web.pages.Why`).
        hops: other addresses that were asked on the way, where it redirects.
        digest: of the text that was read, so that a replay can tell whether it was the same; "" for none.
    """

    url: str
    final: str
    outcome: str
    digest: str = ""
    hops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What came back from one call.

    Attributes:
        shown: evidence ids that the call added to the context; `repeats`: those it found that were there already.
        sightings: every chunk in the evidence store that the call's ranking held, shown now or before.
        news: whether it brought a chunk never shown before that ranks among the first ten of its query.
        fetched: addresses of the web that were asked for.
    """

    call: Call
    outcome: Outcome
    message: str
    shown: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    receipt: Receipt | None = None
    news: bool = False
    fetched: tuple[Fetched, ...] = ()


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
        strategy: how the context is kept small; `fold_due`: whether this turn must call `fold` before anything else.
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
    strategy: Strategy = Strategy.PRUNE
    fold_due: bool = False


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call as a policy asks for it: the engine gives it an id. `arguments` is JSON text, or an object.

    `ids` are the sampled tokens that the call is made of, framing included, where the policy works with tokens.
    """

    name: str
    arguments: str | Mapping[str, Any]
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampled:
    """One model call, token by token, as training needs it.

    Attributes:
        prompt_ids: the prompt, exactly as the model had it.
        output_ids: what it sampled, the closing token included.
        logprobs: the sampler's own, one for each of `output_ids`; None where the server gave none.
        model: what answered; `weights`: the version of its weights, "" where it has none.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    model: str = ""
    weights: str = ""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What the model server counted for one turn: tokens, those of the prompt it found in its cache, and retries."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants done in this turn.

    Attributes:
        reasoning_ids: the sampled tokens that `reasoning` is made of, where the policy works with tokens.
        sampled: the model call behind it; None for policies without tokens.
        faults: what was wrong with the model's reply and was repaired or dropped (a call cut short, a name with a
            prefix, text that is no call). Each counts as a recovery, and the model reads them after this turn.
    """

    calls: tuple[ToolUse, ...]
    reasoning: str = ""
    reasoning_ids: tuple[int, ...] = ()
    sampled: Sampled | None = None
    usage: ModelUsage | None = None
    faults: tuple[str, ...] = ()


class Policy(Protocol):
    """Decides turn by turn. One instance serves one search, so it may keep state between turns."""

    @property
    def name(self) -> str:
        """How traces call it."""

    async def decide(self, view: View) -> Decision:
        """The next turn. Raises `PolicyError` when it cannot decide."""


class ModelPolicy(Policy, Protocol):
    """A policy with a tokenizer of its own: the context is counted, and rendered, as its model reads it.

    For authors of policies: the engine looks for the two by their names (`thresher.engine.agent`), and takes its own
    for one that is not there.
    """

    @property
    def counter(self) -> TokenCounter:
        """Counts as the model does."""

    @property
    def renderer(self) -> Renderer:
        """Turns blocks into the model's prompt."""
