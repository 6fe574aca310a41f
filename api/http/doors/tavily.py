"""Tavily's search and extract, over the corpus in place of the web.

Base URL for Tavily's clients: `http://HOST:8420/tavily` (`TavilyClient(api_key=…, api_base_url=…)`). Give it any key
where the server has none: without one the client calls every error a limit of keyless access.

What a request means:
- `search_depth`: `ultra-fast` and `fast` are one hybrid search, `basic` (the default) is effort low, `advanced` effort
  medium. The client waits for 60 s, so a search answers after 45 s with what it has, unless `thresher.deadline_s` says
  otherwise.
- `max_results` counts documents; `chunks_per_source` (3) their passages, which `content` holds in reading order.
- `include_domains`, `exclude_domains`: host names of the documents' URLs. With `include_domains_mode: prefer` they
  are not needed and not read.
- `include_answer`: an answer whose citations are checked; null where the documents hold none. `include_raw_content`:
  the documents' whole text.
- `thresher`: an object with `collections`, `filters`, `effort`, `deadline_s`. The client passes on what it does not
  know: `client.search("…", thresher={"collections": ["letters"]})`.
- Refused, since to ignore them would change the results without a word: `time_range`, `start_date`, `end_date`,
  `days` (but for topic general, where it means nothing to Tavily either), `max_age_hours` (documents have no date of
  their own; filter by metadata), `exact_match`, and `filter_by_language`.
- Ignored: `topic`, `country`, `language`, `auto_parameters`, images, favicons, `api_key` in the body (it comes as a
  header), and every field that is not known.

`/extract` reads documents of the corpus by URL or id; it fetches nothing.

Errors have the project's one shape with `detail.error` beside it, which the client reads. It can only show the
message of a 400, 401, 403 or 429, so what is a 404 or 422 elsewhere is a 400 here.
"""

from __future__ import annotations

import asyncio
import time
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
from thresher.api.http.doors.documenting import EXTRACTED, TAVILY, shown
from thresher.api.http.doors.pages import Page, Place, pages, site_filter
from thresher.api.http.doors.reading import Read, documents_at, whole_texts
from thresher.api.http.parts import Parts
from thresher.api.service.principal import Principal
from thresher.engine.requests import Effort

router = APIRouter(prefix="/tavily", tags=["door: Tavily"])

MAX_URLS = 20

_EFFORTS = {"ultra-fast": Effort.MINIMAL, "fast": Effort.MINIMAL, "basic": Effort.LOW, "advanced": Effort.MEDIUM}
_DATES = ("time_range", "start_date", "end_date", "days", "max_age_hours")


class TavilyBody(Lenient):
    """`POST /tavily/search`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "Who founded the Brask works?", "include_answer": True},
                {
                    "query": "harbour dues",
                    "search_depth": "fast",
                    "max_results": 3,
                    "include_domains": ["example.org"],
                    "thresher": {"collections": ["letters"]},
                },
            ]
        },
    )

    query: Query
    search_depth: Literal["basic", "advanced", "fast", "ultra-fast"] | None = "basic"
    topic: str | None = Field(default=None, description="Not read, but for `days`.")
    max_results: int | None = Field(default=5, ge=1, le=100, description="Documents returned at most.")
    chunks_per_source: int | None = Field(default=3, ge=1, le=10, description="Passages of each document at most.")
    include_answer: bool | Literal["basic", "advanced"] | None = False
    include_raw_content: bool | Literal["markdown", "text"] | None = False
    include_domains: list[str] | None = Field(default=None, max_length=50)
    exclude_domains: list[str] | None = Field(default=None, max_length=50)
    include_domains_mode: Literal["restrict", "prefer"] | None = None
    include_images: bool | None = False
    include_usage: bool | None = False
    time_range: str | None = Field(default=None, description="Refused: documents have no date of their own.")
    start_date: str | None = Field(default=None, description="Refused, as `time_range`.")
    end_date: str | None = Field(default=None, description="Refused, as `time_range`.")
    days: int | None = Field(
        default=None, description="Refused, as `time_range`; with topic general it means nothing to Tavily either."
    )
    max_age_hours: int | None = Field(default=None, description="Refused, as `time_range`.")
    exact_match: bool | None = Field(default=None, description="Refused if true.")
    filter_by_language: bool | None = Field(default=None, description="Refused if true.")
    thresher: Options | None = None


class TavilyResult(BaseModel):
    """One document. Beyond Tavily's shape: which it is, and where in it the passages stand."""

    title: str
    url: str
    content: str = Field(description="Its best passages, as stored, in reading order, `[...]` between them.")
    score: float = Field(ge=0, le=1, description="Compared with the first result of the search.")
    raw_content: str | None = Field(description="The whole text, if it was asked for.")
    document_id: str
    collection: str
    passages: list[Place]


class TavilyResponse(BaseModel):
    """What Tavily's search answers, and the account of ours."""

    model_config = ConfigDict(json_schema_extra=shown(TAVILY))

    query: str
    follow_up_questions: None = None
    answer: str | None
    images: list[str] = []
    results: list[TavilyResult]
    response_time: float = Field(description="Seconds.")
    request_id: str
    usage: dict[str, int] | None = Field(default=None, description="No credits are charged.")
    thresher: Account


class ExtractBody(Lenient):
    """`POST /tavily/extract`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"urls": ["https://example.org/brask", "notes/ferry.md"]}]},
    )

    urls: Query | Annotated[list[Query], Field(min_length=1, max_length=MAX_URLS)] = Field(
        description="URLs of documents as search results have them, or document ids."
    )
    thresher: Options | None = None


class Extracted(BaseModel):
    """One document."""

    url: str
    title: str
    raw_content: str
    images: list[str] = []
    document_id: str
    collection: str


class NotExtracted(BaseModel):
    """A URL that is not in the corpus."""

    url: str
    error: str


class ExtractResponse(BaseModel):
    """What Tavily's extract answers."""

    model_config = ConfigDict(json_schema_extra=shown(EXTRACTED))

    results: list[Extracted]
    failed_results: list[NotExtracted]
    response_time: float
    request_id: str


@router.post("/search")
async def tavily_search(body: TavilyBody, request: Request, caller: Searcher, server: Server) -> TavilyResponse:
    """Search, in Tavily's shape.

    Documents that answer the query, best first, each with its best passages; an answer if `include_answer`.

    `search_depth` says how hard to search. `results` is empty where nothing was found and `thresher.outcome` says
    more; a search that could not be run is an error. Fields about dates are refused, others that mean nothing here
    are ignored.
    """
    started = time.perf_counter()
    _refuse(body)
    options = body.thresher or Options()
    wanted = body.include_domains if body.include_domains_mode != "prefer" else None
    sites = site_filter(wanted, body.exclude_domains, "include_domains" if wanted else "exclude_domains")
    most, passages = body.max_results or 5, body.chunks_per_source or 3
    search = search_body(
        body.query,
        collections=options.collections,
        effort=options.effort or _EFFORTS[body.search_depth or "basic"],
        sources=options.sources,
        filters=both(sites, options.filters),
        deadline_s=client_deadline(options, server),
        max_results=min(100, most * passages),
        include_answer=bool(body.include_answer),
    )
    responses = await ask(request, caller, server, [search])
    found = pages(responses, most, passages=passages)
    texts = await _whole(found, caller, server) if body.include_raw_content else {}
    notices = []
    if body.include_domains and wanted is None:
        notices.append("include_domains not used: include_domains_mode is prefer")
    if responses[0].answer_withheld:
        notices.append(responses[0].answer_withheld)
    return TavilyResponse(
        query=body.query,
        answer=responses[0].answer,
        results=[_result(page, texts) for page in found],
        response_time=round(time.perf_counter() - started, 3),
        request_id=str(request.state.request_id),
        usage={"credits": 0} if body.include_usage else None,
        thresher=account(responses, notices=notices),
    )


@router.post("/extract")
async def tavily_extract(body: ExtractBody, request: Request, caller: Searcher, server: Server) -> ExtractResponse:
    """Read documents of the corpus, in Tavily's shape.

    The whole text of documents, named by the URLs that results have, or by their ids. Nothing is fetched: what is
    not in the corpus is among the `failed_results`.
    """
    started = time.perf_counter()
    options = body.thresher or Options()
    wanted = [body.urls] if isinstance(body.urls, str) else list(dict.fromkeys(body.urls))
    left, results = list(wanted), dict[str, Extracted]()
    collections = options.collections if options.collections is not None else [server.settings.collection]
    for name in collections:
        found = await documents_at(caller, server, name, left, options.filters)
        results |= {url: _extracted(url, name, document) for url, document in found.items()}
        left = [url for url in left if url not in results]
    where = ", ".join(collections)
    missing = f"no document of {where} has that URL or id; this server reads its collections and fetches no pages"
    return ExtractResponse(
        results=[results[url] for url in wanted if url in results],
        failed_results=[NotExtracted(url=url, error=missing) for url in left],
        response_time=round(time.perf_counter() - started, 3),
        request_id=str(request.state.request_id),
    )


def _refuse(body: TavilyBody) -> None:
    for field in _DATES:
        if field == "days" and body.topic == "general":  # as the client's qna_search sends it
            continue
        if getattr(body, field) is not None:
            message = (
                f"{field} cannot be honoured: documents have no date of their own; filter by metadata with "
                'thresher={"filters": {"type": "gte", "key": …, "value": …}}'
            )
            raise unsupported(field, message)
    if body.exact_match:
        raise unsupported("exact_match", "exact_match cannot be honoured: passages are found by meaning too")
    if body.filter_by_language:
        message = "filter_by_language cannot be honoured: documents have no language; filter by metadata"
        raise unsupported("filter_by_language", message)


async def _whole(found: list[Page], caller: Principal, server: Parts) -> dict[tuple[str, str], str]:
    """The whole text of each page's document, by collection and id."""
    by_collection: dict[str, list[str]] = {}
    for page in found:
        by_collection.setdefault(page.best.collection, []).append(page.best.document_id)
    read = await asyncio.gather(*(whole_texts(caller, server, name, ids) for name, ids in by_collection.items()))
    return {(name, key): text for name, texts in zip(by_collection, read, strict=True) for key, text in texts.items()}


def _result(page: Page, texts: dict[tuple[str, str], str]) -> TavilyResult:
    best = page.best
    return TavilyResult(
        title=best.title or best.document_id,
        url=best.url,
        content=page.text,
        score=page.score,
        raw_content=texts.get((best.collection, best.document_id)),
        document_id=best.document_id,
        collection=best.collection,
        passages=page.places,
    )


def _extracted(url: str, collection: str, document: Read) -> Extracted:
    return Extracted(
        url=url, title=document.title, raw_content=document.text, document_id=document.id, collection=collection
    )
