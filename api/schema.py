"""The JSON shape of a search, the same for `thresher search --json` and `POST /v1/search`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.context import Citation
    from thresher.engine.requests import Answer, RankedEvidence, SearchResult


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class SpanModel(_Model):
    """A quote that carries the answer; `start` and `end` are character offsets in the document."""

    start: int
    end: int
    text: str


class CitationModel(SpanModel):
    """A quote with where it stands, byte-equal to the stored text."""

    id: str
    document_id: str
    url: str


class ResultModel(_Model):
    """One passage, best first; `start` and `end` are character offsets of `text` in the document.

    `page` is the page or slide that it starts on, from 1, of a file that has them. `rerank` is the reranker's own
    score, where one read it; `duplicates` are the ids of passages that were left out because nearly all they say
    stands in this one. `agent` is the sub-agent or rollout that found it, "" for the search itself. `collection` is
    the one that it stands in, where the search was asked through a server.
    """

    id: str
    document_id: str
    title: str
    url: str
    text: str
    start: int
    end: int
    page: int | None
    score: float
    rerank: float | None = None
    duplicates: list[str] = []
    spans: list[SpanModel]
    metadata: dict[str, str | int | float | bool]
    source: Literal["corpus", "web"]
    agent: str = ""
    collection: str = ""


class ErrorModel(_Model):
    """Why a search could not be run."""

    type: str
    code: str
    message: str
    param: str | None = None


class SearchResponse(_Model):
    """What a search answers.

    `answer` is there when it was asked for and the evidence holds it; else `answer_withheld` says why not, if it was
    asked for. `citations` are those of the answer, or, where none was asked for, the quotes that the policy named.
    `refused_citations` is how many the answer had that do not stand in the evidence. `trajectory` is there when it was
    asked for.

    A server's searches are also `queued`, `running` and `cancelled`, with what was found so far; `error` says why one
    could not be run at all. `created_at` is in seconds since 1970. Where policies are released step by step (`thresher
    train loop`), `release` is the one that searched, and `arm` what its user was dealt to.
    """

    id: str
    object: Literal["search"] = "search"
    status: Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
    query: str
    results: list[ResultModel]
    answer: str | None = None
    answer_withheld: str | None = None
    citations: list[CitationModel]
    refused_citations: int = 0
    stop_reason: str | None
    sufficient: bool | None
    justification: str | None
    missing: list[str]
    usage: dict[str, int | float]
    warnings: list[str]
    notices: list[str]
    trajectory: dict[str, Any] | None = None
    collections: list[str] = []
    created_at: int | None = None
    background: bool = False
    error: ErrorModel | None = None
    release: str | None = None
    arm: Literal["live", "canary"] | None = None


def search_response(result: SearchResult, *, include_trace: bool = False) -> SearchResponse:
    """A result of the engine as the faces show it."""
    answer = result.answer
    quotes = [] if answer else [_citation(span) for item in result.results for span in item.spans]
    trajectory = result.trajectory.model_dump(mode="json") if include_trace and result.trajectory else None
    return SearchResponse.model_validate(
        {
            "id": result.id,
            "status": result.status,
            "query": result.query,
            "results": [_result(item) for item in result.results],
            **answer_fields(answer, quotes),
            "stop_reason": str(result.stop_reason),
            "sufficient": result.sufficient,
            "justification": result.justification,
            "missing": list(result.missing),
            "usage": {**asdict(result.usage), "speedup": result.usage.speedup},
            "warnings": list(result.warnings),
            "notices": list(result.notices),
            "trajectory": trajectory,
        }
    )


def answer_fields(answer: Answer | None, quotes: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The fields of a response that tell an answer; `quotes` are its citations where there is none."""
    return {
        "answer": (answer.text or None) if answer else None,
        "answer_withheld": answer.withheld_reason if answer else None,
        "citations": [_citation(span) for span in answer.citations] if answer else list(quotes),
        "refused_citations": answer.refused_citations if answer else 0,
    }


def result_model(item: RankedEvidence) -> ResultModel:
    """One passage as the faces show it."""
    return ResultModel.model_validate(_result(item))


def _result(item: RankedEvidence) -> dict[str, Any]:
    return {
        "id": item.id,
        "document_id": item.document_id,
        "title": item.title,
        "url": item.uri,
        "text": item.text,
        "start": item.start,
        "end": item.end,
        "page": item.page,
        "score": item.score,
        "rerank": item.rerank,
        "duplicates": list(item.duplicates),
        "spans": [{"start": span.start, "end": span.end, "text": span.text} for span in item.spans],
        "metadata": dict(item.metadata),
        "source": item.source,
        "agent": item.agent,
        "collection": item.collection,
    }


def _citation(span: Citation) -> dict[str, Any]:
    return {
        "id": span.evidence_id,
        "document_id": span.document_id,
        "url": span.uri,
        "start": span.start,
        "end": span.end,
        "text": span.text,
    }
