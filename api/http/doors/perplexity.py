"""Perplexity's search, over the corpus in place of the web.

Base URL for Perplexity's clients: `http://HOST:8420/perplexity` (`Perplexity(api_key=…, base_url=…)`).

What a request means:
- `query`: one, or up to five that are searched for side by side; their documents take turns in the one list.
- Each search is effort low, unless `thresher.effort` says otherwise, and answers after 45 s with what it has.
- `max_results` counts documents. `max_tokens_per_page` and `max_tokens` bound the `snippet` of each and of all
  together, in o200k tokens; `search_context_size` low, medium and high are 512, 1,024 and 4,096 a page.
- `search_domain_filter`: host names of the documents' URLs; with `-` before it, one that is left out.
- `thresher`: an object with `collections`, `filters`, `effort`, `deadline_s`
  (`client.search.create(query="…", extra_body={"thresher": {…}})`).
- Refused, since to ignore them would change the results without a word: date and recency filters (documents have no
  date of their own; filter by metadata), `search_language_filter`, `search_mode` and `search_type` other than `web`.
- Ignored: `country`, and every field that is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.asking import (
    Account,
    Lenient,
    Options,
    Query,
    account,
    ask,
    both,
    client_deadline,
    search_body,
    unsupported,
)
from thresher.api.http.doors.documenting import PERPLEXITY, shown
from thresher.api.http.doors.pages import PASSAGES_A_PAGE, Page, Place, pages, site_filter
from thresher.engine.requests import Effort
from thresher.engine.tokenizers import default_counter

router = APIRouter(prefix="/perplexity", tags=["door: Perplexity"])

MAX_QUERIES = 5
DEFAULT_TOKENS, DEFAULT_PAGE_TOKENS = 10_000, 1_024
_PAGE_TOKENS = {"low": 512, "medium": DEFAULT_PAGE_TOKENS, "high": 4_096}
_DATES = (
    "search_recency_filter",
    "search_after_date_filter",
    "search_before_date_filter",
    "last_updated_after_filter",
    "last_updated_before_filter",
)


class PerplexityBody(Lenient):
    """`POST /perplexity/search`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "Who founded the Brask works?", "max_results": 5},
                {"query": ["Brask works founder", "ferry Alma engine"], "max_tokens_per_page": 256},
            ]
        },
    )

    query: Query | Annotated[list[Query], Field(min_length=1, max_length=MAX_QUERIES)]
    max_results: int | None = Field(default=10, ge=1, le=100, description="Documents returned at most.")
    max_tokens: int | None = Field(default=DEFAULT_TOKENS, ge=1, le=1_000_000, description="Of all snippets together.")
    max_tokens_per_page: int | None = Field(default=None, ge=1, le=1_000_000, description="Of one snippet.")
    search_context_size: Literal["low", "medium", "high"] | None = None
    search_domain_filter: list[str] | None = Field(default=None, max_length=50)
    search_recency_filter: str | None = Field(default=None, description="Refused: documents have no date of their own.")
    search_after_date_filter: str | None = Field(default=None, description="Refused, as `search_recency_filter`.")
    search_before_date_filter: str | None = Field(default=None, description="Refused, as `search_recency_filter`.")
    last_updated_after_filter: str | None = Field(default=None, description="Refused, as `search_recency_filter`.")
    last_updated_before_filter: str | None = Field(default=None, description="Refused, as `search_recency_filter`.")
    search_language_filter: list[str] | None = Field(default=None, description="Refused.")
    search_mode: str | None = Field(default=None, description="`web` only.")
    search_type: str | None = Field(default=None, description="`web` only.")
    display_server_time: bool | None = False
    thresher: Options | None = None

    @property
    def queries(self) -> list[str]:
        """All of them, each once."""
        return [self.query] if isinstance(self.query, str) else list(dict.fromkeys(self.query))


class PerplexityResult(BaseModel):
    """One document. Beyond Perplexity's shape: which it is, and where in it the passages stand."""

    title: str
    url: str
    snippet: str = Field(description="Its best passages, as stored, in reading order, `[...]` between them.")
    date: None = None
    last_updated: None = None
    score: float = Field(ge=0, le=1, description="Compared with the first result of its query.")
    document_id: str
    collection: str
    passages: list[Place]


class PerplexityResponse(BaseModel):
    """What Perplexity's search answers, and the account of ours."""

    model_config = ConfigDict(json_schema_extra=shown(PERPLEXITY))

    id: str
    results: list[PerplexityResult]
    server_time: str | None = None
    thresher: Account


@router.post("/search")
async def perplexity_search(
    body: PerplexityBody, request: Request, caller: Searcher, server: Server
) -> PerplexityResponse:
    """Search, in Perplexity's shape.

    Documents that answer the query, or any of several, best first, each with its best passages as `snippet`.

    `results` is empty where nothing was found and `thresher.outcome` says more; a search that could not be run is an
    error. Date and language filters are refused.
    """
    _refuse(body)
    options = body.thresher or Options()
    domains = body.search_domain_filter or []
    sites = site_filter(
        [domain for domain in domains if not domain.startswith("-")],
        [domain[1:] for domain in domains if domain.startswith("-")],
        "search_domain_filter",
    )
    most = body.max_results or 10
    searches = [
        search_body(
            query,
            collections=options.collections,
            effort=options.effort or Effort.LOW,
            sources=options.sources,
            filters=both(sites, options.filters),
            deadline_s=client_deadline(options, server),
            max_results=min(100, most * PASSAGES_A_PAGE),
            include_answer=False,
        )
        for query in body.queries
    ]
    responses = await ask(request, caller, server, searches)
    found = pages(responses, most)
    a_page = body.max_tokens_per_page or _PAGE_TOKENS[body.search_context_size or "medium"]
    snippets = await asyncio.to_thread(
        bounded, [page.text for page in found], a_page, body.max_tokens or DEFAULT_TOKENS
    )
    cut = sum(snippet != page.text for snippet, page in zip(snippets, found, strict=True))
    notices = [f"{cut} of {len(found)} snippets cut to max_tokens or max_tokens_per_page"] if cut else []
    return PerplexityResponse(
        id=responses[0].id,
        results=[_result(page, snippet) for page, snippet in zip(found, snippets, strict=True)],
        server_time=datetime.now(UTC).isoformat(timespec="seconds") if body.display_server_time else None,
        thresher=account(responses, notices=notices),
    )


def bounded(texts: Sequence[str], a_text: int, all_texts: int) -> list[str]:
    """Texts cut at the end to `a_text` tokens each, and to `all_texts` together; past that they are empty."""
    counter = default_counter()
    bounded = []
    for text in texts:
        most = min(a_text, all_texts)
        # Most tokens have more than one character, none has less than a byte: the first cut is a cheap one.
        cut = text[: most * 16]
        while cut and (tokens := counter.count_once(cut)) > most:
            cut = cut[: min(len(cut) - 1, len(cut) * most // tokens)]
        bounded.append(cut)
        all_texts -= counter.count_once(cut)
    return bounded


def _refuse(body: PerplexityBody) -> None:
    for field in _DATES:
        if getattr(body, field) is not None:
            message = (
                f"{field} cannot be honoured: documents have no date of their own; filter by metadata with "
                'extra_body={"thresher": {"filters": {"type": "gte", "key": …, "value": …}}}'
            )
            raise unsupported(field, message)
    if body.search_language_filter:
        message = "search_language_filter cannot be honoured: documents have no language; filter by metadata"
        raise unsupported("search_language_filter", message)
    for field in ("search_mode", "search_type"):
        if getattr(body, field) not in (None, "web"):
            raise unsupported(field, f"{field} must be 'web' or left out: there is one corpus to search")


def _result(page: Page, snippet: str) -> PerplexityResult:
    best = page.best
    return PerplexityResult(
        title=best.title or best.document_id,
        url=best.url,
        snippet=snippet,
        score=page.score,
        document_id=best.document_id,
        collection=best.collection,
        passages=page.places,
    )
