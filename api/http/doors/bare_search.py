"""`POST /search`: for clients of Tavily or Perplexity whose base URL is the server's own, `http://HOST:8420`.

Both post to `<base>/search`, so who asks decides about the shape: a request whose User-Agent is that of Perplexity's
SDK (`Perplexity/…`, `AsyncPerplexity/…`) gets Perplexity's, every other one Tavily's, which is what most programs with
a setting for a search URL speak. Whoever can should say `/tavily` or `/perplexity`.
"""

from __future__ import annotations

from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.documenting import JSON, PERPLEXITY, TAVILY
from thresher.api.http.doors.errors import from_perplexity
from thresher.api.http.doors.perplexity import PerplexityBody, PerplexityResponse, perplexity_search
from thresher.api.http.doors.tavily import (
    ExtractBody,
    ExtractResponse,
    TavilyBody,
    TavilyResponse,
    tavily_extract,
    tavily_search,
)

router = APIRouter(tags=["door: Tavily"])

B = TypeVar("B", bound=BaseModel)

_EITHER = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in (TavilyBody, PerplexityBody)]
_ASKED = {"query": "Who was the founder of the Brask works?"}
_ANSWERS = {"Tavily's shape": {"value": TAVILY}, "Perplexity's shape": {"value": PERPLEXITY}}


@router.post(
    "/search",
    responses={200: {"content": {JSON: {"examples": _ANSWERS}}}},
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": {"anyOf": _EITHER}, "example": _ASKED}}}
    },
)
async def bare_search(request: Request, caller: Searcher, server: Server) -> TavilyResponse | PerplexityResponse:
    """Search, in Perplexity's shape for its SDK and in Tavily's for everybody else.

    The same as `/perplexity/search` for a request with the User-Agent of Perplexity's SDK, and as `/tavily/search` for
    every other.
    """
    content = await request.body()
    if from_perplexity(request.headers.get("user-agent")):
        return await perplexity_search(_body(PerplexityBody, content), request, caller, server)
    return await tavily_search(_body(TavilyBody, content), request, caller, server)


@router.post("/extract")
async def bare_extract(body: ExtractBody, request: Request, caller: Searcher, server: Server) -> ExtractResponse:
    """Read documents of the corpus: the same as `/tavily/extract`."""
    return await tavily_extract(body, request, caller, server)


def _body(kind: type[B], content: bytes) -> B:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from error
