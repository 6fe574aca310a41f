"""OpenAI's vector stores: each collection is one, and its name is the id.

Base URL for OpenAI's clients: `http://HOST:8420/v1`.

A search is one hybrid search, as clients expect an answer at once; with `rewrite_query: true`, or an effort in the
`thresher` object, it is one of several turns. `filters` are the project's own grammar, which is OpenAI's. Several
queries are searched for side by side; a passage that several find has its best score.

Scores compare the results of one query with its first one, which has 1.0; they are no similarities. Where a reranker
read the passages, they are its scores, brought to 0..1. `ranking_options.score_threshold` leaves out what is below it.
`ranking_options.ranker` is accepted and changes nothing: how to rank is the operator's setting. Files are documents:
`file_id` is the document's id, `attributes` its metadata.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.asking import (
    Account,
    Lenient,
    Options,
    account,
    ask,
    both,
    relevances,
    search_body,
    unsupported,
)
from thresher.api.http.doors.asking import Query as QueryText
from thresher.api.http.doors.documenting import STORE, STORE_RESULTS, shown
from thresher.api.http.doors.stores import qualified
from thresher.api.schema import ResultModel, SearchResponse
from thresher.api.service.content.collections import CollectionModel
from thresher.engine.requests import Effort

router = APIRouter(prefix="/v1/vector_stores", tags=["door: OpenAI"])

MAX_QUERIES = 5


class RankingOptions(Lenient):
    """Only the threshold is read."""

    ranker: str | None = None
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class StoreSearchBody(Lenient):
    """`POST /v1/vector_stores/{vector_store_id}/search`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": "Who founded the Brask works?",
                    "max_num_results": 5,
                    "filters": {"type": "gte", "key": "year", "value": 1950},
                }
            ]
        },
    )

    query: QueryText | Annotated[list[QueryText], Field(min_length=1, max_length=MAX_QUERIES)]
    filters: dict[str, Any] | None = Field(default=None, description="Metadata filter, in OpenAI's grammar.")
    max_num_results: int | None = Field(default=10, ge=1, le=50)
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = Field(default=False, description="Let the search word its own queries, at effort low.")
    thresher: Options | None = None

    @property
    def queries(self) -> list[str]:
        """All of them, each once."""
        return [self.query] if isinstance(self.query, str) else list(dict.fromkeys(self.query))


class TextContent(BaseModel):
    """The text of a passage, as stored."""

    type: Literal["text"] = "text"
    text: str


class StoreResult(BaseModel):
    """One passage. `start` and `end` are its place in the document, in characters; OpenAI's shape ends before them."""

    file_id: str = Field(description="The document's id.")
    filename: str = Field(description="The document's title, or its id where it has none.")
    score: float = Field(ge=0, le=1)
    attributes: dict[str, str | int | float | bool]
    content: list[TextContent]
    url: str
    start: int
    end: int


class StoreResults(BaseModel):
    """`vector_store.search_results.page`; there is one page."""

    model_config = ConfigDict(json_schema_extra=shown(STORE_RESULTS))

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[StoreResult]
    has_more: bool = False
    next_page: None = None
    thresher: Account


class FileCounts(BaseModel):
    """How many documents there are; those being read are jobs and not counted here, failed ones not in lists."""

    in_progress: int = 0
    completed: int
    failed: int
    cancelled: int = 0
    total: int


class Store(BaseModel):
    """A collection as a vector store. One that cannot be opened is `in_progress`; its metadata says why."""

    model_config = ConfigDict(json_schema_extra=shown(STORE))

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str
    usage_bytes: int
    file_counts: FileCounts
    status: Literal["completed", "in_progress"]
    expires_after: None = None
    expires_at: None = None
    last_active_at: int | None = None
    metadata: dict[str, str]


class StoreList(BaseModel):
    """A page of them, by name."""

    model_config = ConfigDict(
        json_schema_extra=shown(
            {"object": "list", "data": [STORE], "first_id": "harbour", "last_id": "harbour", "has_more": False}
        )
    )

    object: Literal["list"] = "list"
    data: list[Store]
    first_id: str | None
    last_id: str | None
    has_more: bool


@router.get("")
def list_stores(
    caller: Searcher,
    server: Server,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(description="The id that the page begins behind.")] = None,
    order: Annotated[Literal["asc", "desc"] | None, Query(description="Accepted; the order is by name.")] = None,
    before: Annotated[str | None, Query(description="Refused: pages go forward only.")] = None,
) -> StoreList:
    """List collections, in the shape of OpenAI's vector stores.

    By name, and without opening any.
    """
    if before is not None:
        raise unsupported("before", "before is not supported: pages go forward only; use after")
    data, more = server.collections.page(caller, after=after, limit=limit)
    ends = (data[0].name, data[-1].name) if data else (None, None)
    return StoreList(data=[_store(item) for item in data], first_id=ends[0], last_id=ends[1], has_more=more)


@router.get("/{vector_store_id}")
def get_store(vector_store_id: str, caller: Searcher, server: Server) -> Store:
    """Look at a collection, in the shape of OpenAI's vector stores."""
    qualified(caller, vector_store_id)
    return _store(server.collections.get(caller, vector_store_id))


@router.post("/{vector_store_id}/search")
async def search_store(
    vector_store_id: str, body: StoreSearchBody, request: Request, caller: Searcher, server: Server
) -> StoreResults:
    """Search a collection, in the shape of OpenAI's vector stores.

    One hybrid search of the collection, best passage first, with scores in 0..1 that compare within a query.

    `filters` take OpenAI's grammar. `rewrite_query: true` searches over several turns. An empty `data` means that
    nothing was found: a search that could not be run is an error.
    """
    qualified(caller, vector_store_id)
    options = body.thresher or Options()
    if options.collections is not None and options.collections != [vector_store_id]:
        message = "thresher.collections: the path names the collection already; leave it out"
        raise ApiError(422, "invalid_field", message, param="thresher.collections")
    most = body.max_num_results or 10
    searches = [
        search_body(
            query,
            collections=[vector_store_id],
            effort=options.effort or (Effort.LOW if body.rewrite_query else Effort.MINIMAL),
            filters=both(body.filters, options.filters),
            deadline_s=options.deadline_s,
            max_results=most,
            include_answer=False,
        )
        for query in body.queries
    ]
    responses = await ask(request, caller, server, searches)
    least = (body.ranking_options or RankingOptions()).score_threshold or 0.0
    best = [(score, result) for score, result in _merged(responses) if score >= least][:most]
    return StoreResults(
        search_query=body.queries,
        data=[_result(score, result) for score, result in best],
        thresher=account(responses),
    )


def _merged(responses: list[SearchResponse]) -> list[tuple[float, ResultModel]]:
    """The passages of all queries, each once with its best score, best first; ties as the queries come."""
    best: dict[tuple[str, int, int], tuple[float, ResultModel]] = {}
    for response in responses:
        for score, result in zip(relevances(response.results), response.results, strict=True):
            key = (result.document_id, result.start, result.end)
            if key not in best or best[key][0] < score:
                best[key] = (score, result)
    return sorted(best.values(), key=lambda item: -item[0])


def _result(score: float, result: ResultModel) -> StoreResult:
    return StoreResult(
        file_id=result.document_id,
        filename=result.title or result.document_id,
        score=score,
        attributes=dict(result.metadata),
        content=[TextContent(text=result.text)],
        url=result.url,
        start=result.start,
        end=result.end,
    )


def _store(seen: CollectionModel) -> Store:
    failed = (seen.sources or {}).get("failed", 0)
    documents = seen.documents or 0
    told = {"chunks": seen.chunks, "embedder": seen.embedder, "problem": seen.problem}
    return Store(
        id=seen.name,
        created_at=seen.created_at or 0,
        name=seen.name,
        usage_bytes=seen.bytes or 0,
        file_counts=FileCounts(completed=documents, failed=failed, total=documents + failed),
        status="in_progress" if seen.problem else "completed",
        metadata={key: str(value)[:512] for key, value in told.items() if value is not None},
    )
