"""Looking into collections once, without a policy: ranked passages, matches of a pattern, the text of a document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.private import for_client
from thresher.api.schema import ResultModel, result_model
from thresher.api.service.searching.asking import collections_of
from thresher.api.service.searching.bodies import MAX_COLLECTIONS, Filters
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.paths import qualified
from thresher.corpus.retrieval.ranking import Ranking, load_ranking
from thresher.engine.federated import ranked_together
from thresher.engine.requests import MAX_QUERY_CHARACTERS, RankedEvidence
from thresher.engine.results import ranked_evidence, with_pages
from thresher.engine.tokenizers import default_counter
from thresher.engine.tools.base import Found
from thresher.engine.tools.retrieval import CorpusScope

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.service.principal import Principal
    from thresher.api.service.registry import Registry
    from thresher.corpus.collection import Collection
    from thresher.engine.search import SearchEngine

MAX_FETCH_TOKENS = 100_000
_CHARACTERS_A_TOKEN = 6
"""More than a token has on average in any language: the first guess at a stretch of text is not too short."""


class RetrieveBody(BaseModel):
    """`POST /v1/retrieve`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [
                {"query": "who founded the Brask works", "max_results": 5},
                {"query": r"(?i)\balma\b", "mode": "grep", "collections": ["letters"]},
                {"query": "harbour dues", "filters": {"type": "eq", "key": "year", "value": 1931}, "rerank": True},
            ]
        },
    )

    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARACTERS, description="Any text; in mode grep an RE2 regular expression."
    )
    collections: list[str] | None = Field(
        None,
        description=f"At most {MAX_COLLECTIONS}, whose lists are fused by rank; left out, the server's default one.",
    )
    max_results: int = Field(10, ge=1, le=100, description="Passages returned at most.")
    filters: Filters | None = Field(None, description="Metadata filter; null is no filter.")
    mode: Literal["hybrid", "grep"] = Field(
        "hybrid", description="hybrid is dense search and BM25, fused; grep finds what the pattern matches."
    )
    near_duplicates: bool | None = Field(
        None, description="Leave out passages nearly all of which stands in a better one; null is as the server does."
    )
    rerank: bool | None = Field(
        None, description="Let the server's reranker order the first passages; null is as the server does."
    )


class RetrieveResponse(BaseModel):
    """Passages, best first; in mode grep in the order of the documents."""

    model_config = ConfigDict(frozen=True)

    object: Literal["retrieval"] = "retrieval"
    query: str
    mode: Literal["hybrid", "grep"]
    collections: list[str]
    results: list[ResultModel]
    warnings: list[str]


class FetchBody(BaseModel):
    """`POST /v1/fetch`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"document_id": "brask.md"}, {"document_id": "brask.md", "start": 12_000}]},
    )

    document_id: str = Field(min_length=1, max_length=4_096, description="As a result of a search names it.")
    collection: str | None = Field(None, description="Left out, the server's default one.")
    start: int = Field(0, ge=0, le=2**53, description="Character offset to read from; `next_start` of the last reply.")
    max_tokens: int = Field(4_000, ge=1, le=MAX_FETCH_TOKENS, description="Length of the text at most.")


class ChunkModel(BaseModel):
    """A passage of a document, by the character offsets of its text there."""

    model_config = ConfigDict(frozen=True)

    id: str
    index: int
    start: int
    end: int


class FetchResponse(BaseModel):
    """A stretch of a document's text as it is stored: its characters `start` to `end` of `length`.

    `next_start` is where to read on, null at the end. `chunks` are the passages that begin or end in the stretch.
    """

    model_config = ConfigDict(frozen=True)

    object: Literal["document"] = "document"
    collection: str
    document_id: str
    title: str
    url: str
    metadata: dict[str, str | int | float | bool]
    text: str
    start: int
    end: int
    length: int
    tokens: int
    next_start: int | None
    chunks: list[ChunkModel]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Looks into the collections of whoever asks."""

    settings: Settings
    registry: Registry

    async def retrieve(self, caller: Principal, body: RetrieveBody) -> RetrieveResponse:
        """The passages that a query finds.

        Raises:
            ApiError: there is no such collection, or the server has no reranker.
            InvalidFilter: `filters` does not follow the grammar.
            InvalidQuery: the query is blank, or no RE2 pattern.
            SearchTimeout: matching the pattern took too long.
        """
        names = collections_of(caller, body.collections, self.settings)
        warnings: list[str] = []
        async with AsyncExitStack() as stack:
            engines = {
                name: await stack.enter_async_context(self.registry.use(qualified(caller.tenant, name)))
                for name in names
            }
            lists = await asyncio.gather(
                *(asyncio.to_thread(_found, name, engine, body, warnings.append) for name, engine in engines.items())
            )
        results = ranked_together(lists, body.max_results) if len(lists) > 1 else lists[0]
        return RetrieveResponse(
            query=body.query,
            mode=body.mode,
            collections=list(names),
            results=[result_model(item) for item in results],
            warnings=[for_client(each) for each in dict.fromkeys(warnings)],
        )

    async def fetch(self, caller: Principal, body: FetchBody) -> FetchResponse:
        """A stretch of a document's text.

        Raises:
            ApiError: there is no such collection, or the document ends before `start`.
            DocumentNotFound: there is no such document in it.
        """
        name = body.collection or self.settings.collection
        async with self.registry.use(caller.collection(name)) as engine:
            return await asyncio.to_thread(_read, name, engine.collection, body)


def _found(
    name: str, engine: SearchEngine, body: RetrieveBody, warn: Callable[[str], None]
) -> tuple[RankedEvidence, ...]:
    scope = CorpusScope(engine.collection, body.filters, _ranking(engine.ranking, body))
    found: tuple[Found, ...]
    if body.mode == "grep":
        hits = engine.collection.grep(body.query, limit=body.max_results, where=scope.where())
        found = tuple(Found.from_hit(hit, rank=rank, place=rank) for rank, hit in enumerate(hits))
    else:
        found = scope.search(body.query, limit=body.max_results, warn=warn)
    evidence = [item.as_evidence(f"c{number}", query=body.query, turn=0) for number, item in enumerate(found, 1)]
    ranked = with_pages(tuple(ranked_evidence(item, item.score) for item in evidence), engine.collection)
    return tuple(replace(item, collection=name) for item in ranked)


def _ranking(own: Ranking, body: RetrieveBody) -> Ranking:
    ranking = own
    if body.near_duplicates is not None:
        usual = own.near_duplicates or load_ranking(near_duplicates=True).near_duplicates
        ranking = replace(ranking, near_duplicates=usual if body.near_duplicates else None)
    if body.rerank and own.reranker is None:
        message = "this server has no reranker; leave rerank out, or have its operator set `reranker`"
        raise ApiError(422, "unsupported", message, param="rerank")
    return replace(ranking, reranker=None) if body.rerank is False else ranking


def _read(name: str, collection: Collection, body: FetchBody) -> FetchResponse:
    info = collection.document(body.document_id)
    if info is None:
        raise DocumentNotFound(f"there is no document {body.document_id!r} in collection {name!r}")
    text = collection.text(body.document_id)
    if body.start and body.start >= len(text):
        message = f"start is past the end: the document has {len(text):,} characters"
        raise ApiError(422, "invalid_field", message, param="start")
    part, tokens = _first_tokens(text, body.start, body.max_tokens)
    end = body.start + len(part)
    return FetchResponse(
        collection=name,
        document_id=info.id,
        title=info.title,
        url=info.uri,
        metadata=dict(info.metadata),
        text=part,
        start=body.start,
        end=end,
        length=len(text),
        tokens=tokens,
        next_start=end if end < len(text) else None,
        chunks=[
            ChunkModel(id=str(chunk.id), index=chunk.index, start=chunk.start, end=chunk.end)
            for chunk in collection.read(body.document_id)
            if chunk.end > body.start and chunk.start < end
        ],
    )


def _first_tokens(text: str, start: int, most: int) -> tuple[str, int]:
    """The longest stretch from `start` on of about `most` tokens and no more, cut between words; and its tokens.

    Never empty where there is text left: a reader who goes on at its end must come to the end of the text.
    """
    count = default_counter().count_once
    part = text[start : start + most * _CHARACTERS_A_TOKEN]
    whole = start + len(part) == len(text)
    while (tokens := count(part)) > most and len(part) > 1:
        part, whole = part[: max(1, min(len(part) - 1, len(part) * most // tokens))], False
    if not whole:
        cut = max(part.rfind(space) for space in (" ", "\n", "\t")) + 1
        if cut > len(part) // 2:
            part = part[:cut]
            tokens = count(part)
    return part, tokens
