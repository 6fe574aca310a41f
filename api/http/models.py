"""The body of a search request, exactly as the API documents it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.engine.requests import (
    MAX_CONTEXT_TOKENS,
    MAX_QUERY_CHARACTERS,
    MAX_ROLLOUTS,
    MIN_CONTEXT_TOKENS,
    Edits,
    Effort,
    Strategy,
)


class SearchBody(BaseModel):
    """`POST /v1/search`. Fields left out take the server's settings; unknown fields are errors.

    The policy and its model's server are the operator's choice: there is no field for them, nor for any secret.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="The question.")
    collections: list[str] | None = Field(None, description="Exactly one collection for now.")
    sources: list[Literal["corpus", "web"]] | None = Field(None, description="Only corpus for now.")
    effort: Effort | None = Field(None, description="minimal is one hybrid search without a policy.")
    max_results: int | None = Field(None, ge=1, le=100)
    max_tokens: int | None = Field(
        None, ge=MIN_CONTEXT_TOKENS, le=MAX_CONTEXT_TOKENS, description="Size of the context in tokens."
    )
    max_turns: int | None = Field(None, ge=1)
    deadline_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    filters: dict[str, Any] | None = Field(None, description="Metadata filter; null is no filter.")
    edits: Edits = Field(Edits.IMMEDIATE, description="batched prunes spare a model server's prefix cache.")
    strategy: Strategy | None = Field(None, description="How the context is kept small.")
    rollouts: int | None = Field(
        None, ge=1, le=MAX_ROLLOUTS, description="Searches of the same question, whose results are fused."
    )
    swarm: bool | None = Field(None, description="Let the policy hand sub-questions to sub-agents.")
    max_critical_steps: int | None = Field(None, ge=1, description="Turns at most, counting parallel ones once.")
    include_answer: bool | None = Field(None, description="Write an answer whose citations are checked.")
    include_trace: bool = False
    stream: bool = False
    background: bool = False


REQUEST_FIELDS = (
    "effort",
    "max_results",
    "max_tokens",
    "max_turns",
    "deadline_s",
    "filters",
    "edits",
    "strategy",
    "rollouts",
    "swarm",
    "max_critical_steps",
    "include_answer",
)
"""Fields of the body that are fields of the engine's request too."""
