"""Cohere's rerank, by the operator's reranker or, without one, by meaning and words.

Base URL for Cohere's clients: `http://HOST:8420` (`cohere.ClientV2(api_key=…, base_url=…)`; the older `Client` works
too). Jina's and vLLM's clients send the same request.

- `model` is taken and not read: which model scores is the operator's setting (`reranker`). What scored is told in the
  header `X-Rerank-Method` and in `meta.warnings`.
- Without a reranker, a text's score is 0.4 · cosine (of the server's default embedder) + 0.6 · BM25, each in 0..1.
- `documents` are texts, or objects: of those `rank_fields` are read, or `text`, or, without it, all fields as lines
  `name: value`. Long ones are cut into passages; the best one counts. `max_chunks_per_doc` (10) bounds them, and so
  does `max_tokens_per_doc`, at 200 tokens a passage; `meta.warnings` say where that left something out.
- Up to 1,000 documents and 2,000 passages a request, and a few requests at once: past them 422 and 429.
- `return_documents` puts the documents into the answer, as Cohere's v1 does. `relevant_spans`, `priority` and fields
  that are not known are ignored.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.asking import Lenient, Query
from thresher.api.http.doors.documenting import RERANKED, shown
from thresher.api.http.doors.scoring import Scored, by_meaning_and_words, by_reranker, passages_of, shared_embedder
from thresher.api.http.parts import Parts
from thresher.api.service.searching.bodies import valid_unicode
from thresher.corpus.chunker import TARGET_TOKENS

router = APIRouter(tags=["door: Cohere"])

MAX_DOCUMENTS = 1_000
MAX_PASSAGES = 2_000
"""Of all documents together: about 20 s of work for the default embedder on two cores."""
DEFAULT_PASSAGES = 10
MAX_FIELDS = 100
AT_ONCE = 2
WAITING = 16
METHOD_HEADER = "X-Rerank-Method"


class RerankBody(Lenient):
    """`POST /v1/rerank` and `/v2/rerank`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "rerank-v3.5",
                    "query": "Who founded the Brask works?",
                    "documents": ["The yard closed in 1958.", "The founder of the Brask works was Edda Brask."],
                    "top_n": 1,
                }
            ]
        },
    )

    model: str | None = Field(default=None, description="Accepted and not read.")
    query: Query
    documents: Annotated[list[str | dict[str, Any]], AfterValidator(valid_unicode)] = Field(
        min_length=1, max_length=MAX_DOCUMENTS
    )
    top_n: int | None = Field(default=None, ge=1, description="Results at most; left out, all documents.")
    rank_fields: list[str] | None = Field(
        default=None, min_length=1, max_length=MAX_FIELDS, description="Fields that are read, in order, each once."
    )
    return_documents: bool | None = False
    max_chunks_per_doc: int | None = Field(default=None, ge=1, le=MAX_PASSAGES)
    max_tokens_per_doc: int | None = Field(default=None, ge=1)

    @property
    def passages_a_document(self) -> int:
        """How many passages of a document are read."""
        chunks = self.max_chunks_per_doc or DEFAULT_PASSAGES
        if self.max_tokens_per_doc is None:
            return chunks
        by_tokens = -(-self.max_tokens_per_doc // TARGET_TOKENS)
        return by_tokens if self.max_chunks_per_doc is None else min(chunks, by_tokens)


class RerankResult(BaseModel):
    """One document, by its place in the request."""

    index: int
    relevance_score: float = Field(ge=0, le=1)
    document: dict[str, Any] | None = None


class ApiVersion(BaseModel):
    """Which of Cohere's shapes this is."""

    version: str


class RerankMeta(BaseModel):
    """`warnings` say what scored."""

    api_version: ApiVersion
    billed_units: dict[str, float] = {"search_units": 0.0}
    warnings: list[str]


class RerankResponse(BaseModel):
    """The documents, most relevant first."""

    model_config = ConfigDict(json_schema_extra=shown(RERANKED))

    id: str
    results: list[RerankResult]
    meta: RerankMeta


@dataclass(slots=True)
class _Turns:
    """Who computes and who waits. One a server; of its event loop."""

    places: asyncio.Semaphore
    waiting: int = 0


@router.post("/v1/rerank", response_model_exclude_none=True)
async def rerank_v1(
    body: RerankBody, request: Request, response: Response, caller: Searcher, server: Server
) -> RerankResponse:
    """Order texts by relevance, in the shape of Cohere's v1.

    Texts or objects, ordered by how relevant they are to the query, with scores in 0..1.

    The operator's reranker scores them, or else cosine and BM25 together; `meta.warnings` and `X-Rerank-Method` say
    which. Any `model` is accepted.
    """
    return await _rerank(body, "1", request, response, server)


@router.post("/v2/rerank", response_model_exclude_none=True)
async def rerank_v2(
    body: RerankBody, request: Request, response: Response, caller: Searcher, server: Server
) -> RerankResponse:
    """Order texts by relevance, in the shape of Cohere's v2.

    The same as `/v1/rerank`.
    """
    return await _rerank(body, "2", request, response, server)


async def _rerank(
    body: RerankBody, version: str, request: Request, response: Response, server: Parts
) -> RerankResponse:
    texts = [_text(document, body.rank_fields, place) for place, document in enumerate(body.documents)]
    async with _turn(request):
        scored, cut = await asyncio.to_thread(_score, server, body, texts)
    order = sorted(range(len(texts)), key=lambda place: -scored.scores[place])[: body.top_n]
    response.headers[METHOD_HEADER] = scored.method.encode("ascii", "replace").decode()
    asked = f"; the model {body.model[:100]!r} of the request was not used" if body.model else ""
    warnings = [f"scored by {scored.method}{asked}"]
    if cut:
        most = body.passages_a_document
        warnings.append(f"of {cut} of {len(texts)} documents only the first {most} passages were read")
    return RerankResponse(
        id=str(uuid.uuid4()),
        results=[
            RerankResult(
                index=place,
                relevance_score=scored.scores[place],
                document=_returned(body.documents[place]) if body.return_documents else None,
            )
            for place in order
        ],
        meta=RerankMeta(api_version=ApiVersion(version=version), warnings=warnings),
    )


def _score(server: Parts, body: RerankBody, texts: list[str]) -> tuple[Scored, int]:
    """The scores, and of how many texts only the beginning was read."""
    whole = [passages_of(text) for text in texts]
    documents = [passages[: body.passages_a_document] for passages in whole]
    cut = sum(len(passages) > body.passages_a_document for passages in whole)
    if (count := sum(map(len, documents))) > MAX_PASSAGES:
        message = (
            f"documents: they come to {count:,} passages of about {TARGET_TOKENS} tokens; the limit is "
            f"{MAX_PASSAGES:,}: send fewer, or lower max_chunks_per_doc"
        )
        raise ApiError(422, "too_many_passages", message, param="documents")
    settings = server.settings
    reranker = settings.ranking().reranker
    if reranker is not None:
        return by_reranker(reranker, body.query, documents), cut
    return by_meaning_and_words(shared_embedder(settings.embedder), body.query, documents), cut


@asynccontextmanager
async def _turn(request: Request) -> AsyncIterator[None]:
    """A place to compute in: scoring takes whole cores, which searches need too."""
    state = request.app.state
    turns: _Turns | None = getattr(state, "rerank_turns", None)
    if turns is None:
        turns = state.rerank_turns = _Turns(asyncio.Semaphore(AT_ONCE))
    if turns.waiting >= WAITING:
        message = f"{WAITING} rerank requests wait already; try again in a moment"
        raise ApiError(429, "too_many_reranks", message, type="rate_limit_error", retry_after_s=2)
    turns.waiting += 1
    try:
        await turns.places.acquire()
    finally:
        turns.waiting -= 1
    try:
        yield
    finally:
        turns.places.release()


def _text(document: str | dict[str, Any], fields: list[str] | None, place: int) -> str:
    """What of a document is read.

    Raises:
        ApiError: 422, it has none of the fields.
    """
    if isinstance(document, str):
        return document
    if fields is None and "text" in document:
        return str(document["text"])
    # Each field once: else a short request could ask for gigabytes.
    wanted = dict.fromkeys(document if fields is None else fields)
    held = [(field, document[field]) for field in wanted if document.get(field) is not None]
    if not held:
        message = f"documents.{place}: the object has nothing to read; give it a field 'text', or name its rank_fields"
        raise ApiError(422, "invalid_field", message, param=f"documents.{place}")
    return "\n".join(str(value) if len(held) == 1 else f"{field}: {value}" for field, value in held)


def _returned(document: str | dict[str, Any]) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document
