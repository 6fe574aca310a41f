"""The body of a search request, exactly as the API documents it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from thresher.engine.requests import (
    MAX_CONTEXT_TOKENS,
    MAX_QUERY_CHARACTERS,
    MAX_ROLLOUTS,
    MIN_CONTEXT_TOKENS,
    Edits,
    Effort,
    Strategy,
)

T = TypeVar("T")

MAX_COLLECTIONS = 8
"""Collections that one search may ask at once: each is a search of its own."""


_BY_NAME = Field(strict=False)
"""Of an enum, JSON has the name."""


def valid_unicode(value: T) -> T:
    """A JSON-ready value without lone surrogates, which JSON may bring and UTF-8 cannot hold.

    Raises:
        ValueError: it has some.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode: it holds lone surrogates") from None
    return value


Filters = Annotated[dict[str, Any], AfterValidator(valid_unicode)]
"""A metadata filter; its grammar is the corpus's."""


class SearchBody(BaseModel):
    """`POST /v1/search`. Fields left out take the server's settings; unknown fields are errors.

    The policy and its model's server are the operator's choice: there is no field for them, nor for any secret.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # true is no number and 1 is not true
        frozen=True,
        json_schema_extra={
            "examples": [
                {"query": "Who founded the works that made the engine of the ferry Alma?", "include_answer": True},
                {"query": "harbour dues 1931", "effort": "minimal", "max_results": 5},
                {
                    "query": "Which yards closed after 1950, and why?",
                    "collections": ["letters", "reports"],
                    "effort": "high",
                    "filters": {"type": "gte", "key": "year", "value": 1950},
                    "deadline_s": 120,
                    "stream": True,
                    "background": True,
                },
            ]
        },
    )

    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="The question.")
    collections: list[str] | None = Field(
        None,
        description="Collections to search, each by a search of its own beside the others; their lists are fused by "
        f"rank. At most {MAX_COLLECTIONS}; left out, the server's default collection.",
    )
    sources: list[Literal["corpus", "web"]] | None = Field(
        None,
        description="Where to look, each once; the web only where the server has a provider for it. Left out, the "
        "server's own setting.",
    )
    effort: Annotated[Effort, _BY_NAME] | None = Field(
        None, description="minimal is one hybrid search without a policy."
    )
    max_results: int | None = Field(None, ge=1, le=100, description="Passages returned at most.")
    max_tokens: int | None = Field(
        None, ge=MIN_CONTEXT_TOKENS, le=MAX_CONTEXT_TOKENS, description="Size of the context in tokens."
    )
    max_turns: int | None = Field(None, ge=1, description="Turns of the policy at most; left out, the effort's own.")
    deadline_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds after which the search ends with what it has found (`status: partial`), counted from "
        "when it begins to run.",
    )
    filters: Filters | None = Field(None, description="Metadata filter; null is no filter.")
    edits: Annotated[Edits, _BY_NAME] = Field(
        Edits.IMMEDIATE, description="batched prunes spare a model server's prefix cache."
    )
    strategy: Annotated[Strategy, _BY_NAME] | None = Field(None, description="How the context is kept small.")
    rollouts: int | None = Field(
        None, ge=1, le=MAX_ROLLOUTS, description="Searches of the same question, whose results are fused."
    )
    swarm: bool | None = Field(None, description="Let the policy hand sub-questions to sub-agents.")
    max_critical_steps: int | None = Field(None, ge=1, description="Turns at most, counting parallel ones once.")
    include_answer: bool | None = Field(None, description="Write an answer whose citations are checked.")
    collect: bool | None = Field(
        None,
        description="Whether this search may be kept to learn from, with personal data taken out. false: never, "
        "whatever the server's settings; true: yes, unless the server collects nothing; null: as server and key say.",
    )
    session: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="What the client calls the user's session: searches of one session are seen as belonging "
        "together. Of searches that are collected only a salted hash of it is kept.",
    )
    include_trace: bool = Field(False, description="Put the whole trajectory into the response.")
    stream: bool = Field(
        False,
        description="Answer with server-sent events as the search goes on; the last one has the whole response.",
    )
    background: bool = Field(
        False,
        description="Let the search go on whoever listens, also after a restart of the server. Alone, the answer is "
        "202 with the search as it stands; with `stream`, its events, which `GET /v1/searches/{id}/events` continues.",
    )


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
    "sources",
)
"""Fields of the body that are fields of the engine's request too."""
