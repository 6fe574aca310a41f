"""A small client of a Thresher server, blocking (`Client`) and asynchronous (`AsyncClient`).

    from thresher.api.client import Client

    with Client("http://127.0.0.1:8420") as thresher:
        found = thresher.search("Who founded the works that made the Alma's engine?", include_answer=True)

It needs httpx and pydantic only: nothing of the server is imported. What goes over the wire and what comes back is
written once, in `calls`, `events` and `retries`, which do no input or output; both clients only move the bytes.
"""

from thresher.api.client.asynchronous import AsyncClient, AsyncJob, AsyncSearch
from thresher.api.client.blocking import Client, JobHandle, SearchHandle
from thresher.api.client.calls import RetrieveOptions, SearchOptions
from thresher.api.client.errors import (
    AuthenticationError,
    Conflict,
    ConnectionFailed,
    InvalidReply,
    InvalidRequest,
    JobFailed,
    NotFound,
    PermissionDenied,
    RateLimited,
    RequestTimeout,
    SearchFailed,
    ServerError,
    ThresherError,
    Unavailable,
)
from thresher.api.client.events import (
    AnswerWritten,
    ContextEdited,
    Event,
    ResultAdded,
    SearchCreated,
    SearchEnded,
    SubagentEnded,
    SubagentStarted,
    ToolCalled,
    ToolResult,
    TurnStarted,
)
from thresher.api.client.models import (
    Collection,
    Document,
    Fetched,
    Job,
    JobProgress,
    PutReport,
    PutResult,
    Retrieved,
    SearchSummary,
)
from thresher.api.client.retries import Retries
from thresher.api.schema import CitationModel, ResultModel, SearchResponse, SpanModel

__all__ = [
    "AnswerWritten",
    "AsyncClient",
    "AsyncJob",
    "AsyncSearch",
    "AuthenticationError",
    "CitationModel",
    "Client",
    "Collection",
    "Conflict",
    "ConnectionFailed",
    "ContextEdited",
    "Document",
    "Event",
    "Fetched",
    "InvalidReply",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobHandle",
    "JobProgress",
    "NotFound",
    "PermissionDenied",
    "PutReport",
    "PutResult",
    "RateLimited",
    "RequestTimeout",
    "ResultAdded",
    "ResultModel",
    "Retries",
    "RetrieveOptions",
    "Retrieved",
    "SearchCreated",
    "SearchEnded",
    "SearchFailed",
    "SearchHandle",
    "SearchOptions",
    "SearchResponse",
    "SearchSummary",
    "ServerError",
    "SpanModel",
    "SubagentEnded",
    "SubagentStarted",
    "ThresherError",
    "ToolCalled",
    "ToolResult",
    "TurnStarted",
    "Unavailable",
]
