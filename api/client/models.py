"""What the server answers, beside searches (`thresher.api.schema`). Fields that a newer server adds are kept."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from thresher.api.schema import ErrorModel, ResultModel

Metadata = dict[str, str | int | float | bool]
M = TypeVar("M", bound=BaseModel)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Page(_Answer, Generic[M]):
    """One page of a list; `next` is the cursor of the one after it."""

    data: list[M]
    has_more: bool = False
    next: str | None = None


class SearchSummary(_Answer):
    """A search as a list shows it; `results` is how many it returned. `created_at` is in seconds since 1970."""

    id: str
    status: Literal["queued", "running", "completed", "partial", "failed", "cancelled"]
    query: str
    collections: list[str] = []
    background: bool = False
    created_at: int | None = None
    stop_reason: str | None = None
    sufficient: bool | None = None
    results: int = 0


class Retrieved(_Answer):
    """Passages, best first; in mode grep in the order of the documents."""

    query: str
    mode: str = "hybrid"
    collections: list[str] = []
    results: list[ResultModel]
    warnings: list[str] = []


class Fetched(_Answer):
    """Text of a document from character `start` to `end` of `length`; `next_start` is where to go on, None at its end.

    `chunks` are the passages that begin or end in it: `{id, index, start, end}` each.
    """

    collection: str = ""
    document_id: str
    title: str = ""
    url: str = ""
    metadata: Metadata = {}
    text: str
    start: int
    end: int
    length: int | None = None
    tokens: int | None = None
    next_start: int | None = None
    chunks: list[dict[str, Any]] = []


class Collection(_Answer):
    """A collection, with how many documents and passages it has. What cannot be told now is None."""

    name: str
    documents: int | None = None
    chunks: int | None = None
    bytes: int | None = None
    embedder: str | None = None
    chunker: str | None = None
    problem: str | None = None


class Document(_Answer):
    """A document of `chunks` passages; `text` is there where it alone was asked for."""

    id: str
    title: str = ""
    url: str = ""
    metadata: Metadata = {}
    source_id: str = ""
    chunks: int = 0
    text: str | None = None


class PutResult(_Answer):
    """What became of one document that was put: `written`, `unchanged`, or `refused` for a `reason`."""

    id: str
    status: str
    reason: str | None = None


class PutReport(_Answer):
    """What became of documents that were put. Those that were written can be found."""

    results: list[PutResult]
    written: int = 0
    unchanged: int = 0
    refused: int = 0
    chunks: int = 0


class JobProgress(_Answer):
    """How far a job is: `share` from 0 to 1, `done` of `total` in `unit`, and seconds left if they can be told."""

    share: float
    done: int = 0
    total: int = 0
    unit: str = ""
    rate: float = 0.0
    eta_s: float | None = None
    seconds: float = 0.0
    documents: int | None = None
    chunks: int | None = None
    current: str | None = None


class Job(_Answer):
    """Work that goes on without its caller. `result` is what it came to, `error` why it failed."""

    id: str
    kind: str
    collection: str | None = None
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    progress: JobProgress | None = None
    result: dict[str, Any] | None = None
    error: ErrorModel | None = None
    attempts: int = 0
    cancelling: bool = False
    files: list[str] | None = None
    created_at: int | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more comes, unless it is retried."""
        return self.status in ("succeeded", "failed", "cancelled")
