"""Every request of the native API as data, and how its response is read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from thresher.api.client.errors import InvalidReply
from thresher.api.client.models import Collection, Document, Fetched, Job, Page, PutReport, Retrieved, SearchSummary
from thresher.api.client.settings import Place
from thresher.api.schema import SearchResponse

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

USUAL_S = 60.0
"""How long a response may take, and the pause between two bytes of it."""

SEARCH_S = 600.0
"""The same for a search that has no deadline."""

BEYOND_DEADLINE_S = 30.0
"""How much later than its deadline a search may answer: what is under way is ended first."""

SILENCE_S = 60.0
"""How long a stream of events may be silent. The server sends a comment every 15 seconds."""


PAGE = 100
"""How much of a list is asked for at once."""


Upkeep = Literal["sync", "verify", "rebuild", "compact"]


class SearchOptions(TypedDict, total=False):
    """What a search may be told; what is left out is as the server's settings say.

    `collections` are searched side by side. `effort` minimal is one hybrid search without a policy. `deadline_s`
    bounds the search: what was found by then is returned. `filters` is a metadata filter. `collect` false keeps the
    server from keeping the search to learn from, and true allows it; `session` names what belongs together.
    """

    collections: Sequence[str] | str
    sources: Sequence[Literal["corpus", "web"]]
    effort: Literal["minimal", "low", "medium", "high"]
    max_results: int
    max_tokens: int
    max_turns: int
    deadline_s: float
    filters: Mapping[str, Any]
    edits: Literal["immediate", "batched"]
    strategy: Literal["prune", "fold", "mask-old", "discard-all", "none"]
    rollouts: int
    swarm: bool
    max_critical_steps: int
    include_answer: bool
    include_trace: bool
    collect: bool
    session: str


class RetrieveOptions(TypedDict, total=False):
    """What a retrieval may be told. `mode` grep takes the query as a regular expression."""

    collections: Sequence[str] | str
    max_results: int
    filters: Mapping[str, Any]
    mode: Literal["hybrid", "grep"]
    near_duplicates: bool
    rerank: bool


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and `read`, which makes its response into a T.

    `repeatable`: sent twice it does no more than sent once. `timeout_s` is for the response and for each
    pause in it; `stream`: the body is read as it comes.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], T] = field(repr=False)
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: Any = None
    files: Sequence[tuple[str, tuple[str, IO[bytes] | bytes]]] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    timeout_s: float = USUAL_S
    stream: bool = False

    def request(self, http: httpx.Client | httpx.AsyncClient, to: Place) -> httpx.Request:
        """The request, for one try: files are read from their beginning."""
        headers = {**to.headers, **self.headers}
        content = None
        if self.body is not None:
            # ASCII: text that UTF-8 cannot encode goes to the server, which says which field has it.
            content = json.dumps(self.body, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        return http.build_request(
            self.method,
            to.base_url + self.path,
            params=dict(self.params) or None,
            content=content,
            files=list(self.files) if self.files is not None else None,
            headers=headers,
            timeout=httpx.Timeout(self.timeout_s, connect=min(self.timeout_s, 10.0)),
        )

    def within(self, timeout_s: float | None) -> Call[T]:
        """The same with a time limit of one's own."""
        return self if timeout_s is None else replace(self, timeout_s=timeout_s)


def search(query: str, options: SearchOptions, idempotency_key: str | None = None) -> Call[SearchResponse]:
    """Search, and wait for the end of it."""
    return _search(query, options, idempotency_key)


def search_stream(query: str, options: SearchOptions) -> Call[None]:
    """Search and be told of it; whoever stops listening ends it."""
    # With an Idempotency-Key it would go on without its listener.
    call = replace(_search(query, options, None, stream=True), headers={})
    return replace(_events_of(call), timeout_s=SILENCE_S)


def search_start(query: str, options: SearchOptions, idempotency_key: str | None = None) -> Call[SearchResponse]:
    """Search in the background."""
    return replace(_search(query, options, idempotency_key, background=True), timeout_s=USUAL_S)


def search_of(search_id: str, *, cancel: bool = False) -> Call[SearchResponse]:
    """A search that was started; `cancel` ends it with what it has."""
    if cancel:
        return Call("POST", f"{_search_path(search_id)}/cancel", _as(SearchResponse), repeatable=True)
    return Call("GET", _search_path(search_id), _as(SearchResponse), repeatable=True)


def search_over(search_id: str) -> Call[bool]:
    """Whether a search has ended."""

    def over(response: httpx.Response) -> bool:
        return _as(SearchResponse)(response).status not in ("queued", "running")

    return Call("GET", _search_path(search_id), over, repeatable=True)


def search_delete(search_id: str) -> Call[None]:
    """Forget a search."""
    return Call("DELETE", _search_path(search_id), _nothing, repeatable=True)


def search_events(search_id: str, after: int) -> Call[None]:
    """What happened in a search since event number `after`, and what happens."""
    return _events(f"{_search_path(search_id)}/events", after)


def search_trace(search_id: str) -> Call[dict[str, Any]]:
    """The trajectory of a search."""
    return Call("GET", f"{_search_path(search_id)}/trace", _object, repeatable=True)


def searches(limit: int, after: str | None) -> Call[Page[SearchSummary]]:
    """Searches that are kept, newest first."""
    return Call("GET", "/v1/searches", _as(Page[SearchSummary]), _page(limit, after), repeatable=True)


def feedback(
    search_id: str,
    rating: float | Literal["up", "down"],
    evidence: Mapping[str, bool] | None,
    comment: str | None,
    answer: str | None,
) -> Call[str]:
    """What somebody thought of a search; answers with the id of the feedback."""
    body = _given(rating=rating, evidence=evidence, comment=comment, answer=answer)
    return Call("POST", f"{_search_path(search_id)}/feedback", lambda response: str(_object(response)["id"]), body=body)


def signal(search_id: str, kind: Literal["opened", "cited", "abandoned"], evidence_id: str | None) -> Call[bool]:
    """What a user did after a search; answers whether that is collected."""
    body = _given(kind=kind, evidence_id=evidence_id)
    path = f"{_search_path(search_id)}/signals"
    return Call("POST", path, lambda response: bool(_object(response)["collected"]), body=body)


def retrieve(query: str, options: RetrieveOptions) -> Call[Retrieved]:
    """Passages without a policy."""
    return Call("POST", "/v1/retrieve", _as(Retrieved), body={"query": query, **_options(options)}, repeatable=True)


def fetch(document_id: str, collection: str | None, start: int | None, max_tokens: int | None) -> Call[Fetched]:
    """The text of a document, a part at a time."""
    body = _given(document_id=document_id, collection=collection, start=start, max_tokens=max_tokens)
    return Call("POST", "/v1/fetch", _fetched, body=body, repeatable=True)


def collections(limit: int, after: str | None) -> Call[Page[Collection]]:
    """The collections that the key may see."""
    return Call("GET", "/v1/collections", _as(Page[Collection]), _page(limit, after), repeatable=True)


def collection(name: str) -> Call[Collection]:
    """One collection."""
    return Call("GET", _collection_path(name), _as(Collection), repeatable=True)


def collection_create(name: str, embedder: str | None) -> Call[Collection]:
    """Make an empty collection."""
    return _once(Call("POST", "/v1/collections", _as(Collection), body=_given(name=name, embedder=embedder)))


def collection_delete(name: str) -> Call[None]:
    """Delete a collection and all that is in it."""
    return Call("DELETE", _collection_path(name), _nothing, {"confirm": name}, repeatable=True)


def documents(name: str, limit: int, after: str | None) -> Call[Page[Document]]:
    """The documents of a collection."""
    path = f"{_collection_path(name)}/documents"
    return Call("GET", path, _as(Page[Document]), _page(limit, after), repeatable=True)


def document(name: str, document_id: str) -> Call[Document]:
    """One document with its text."""
    return Call("GET", _document_path(name, document_id), _as(Document), {"include": "text"}, repeatable=True)


def documents_put(name: str, given: Sequence[Mapping[str, Any]]) -> Call[PutReport]:
    """Put documents: each as it is given from now on, whether it was there or not."""
    body = {"documents": [dict(one) for one in given]}
    path = f"{_collection_path(name)}/documents"
    return Call("PUT", path, _as(PutReport), body=body, repeatable=True, timeout_s=SEARCH_S)


def document_delete(name: str, document_id: str) -> Call[None]:
    """Delete a document."""
    return Call("DELETE", _document_path(name, document_id), _nothing, repeatable=True)


def upload(name: str, files: Sequence[tuple[str, IO[bytes] | bytes]]) -> Call[Job]:
    """Send files to be read, cut and indexed by a job."""
    if not files:
        raise ValueError("there are no files to upload")
    parts = [("files", file) for file in files]
    return _once(Call("POST", f"{_collection_path(name)}/files", _as(Job), files=parts, timeout_s=SEARCH_S))


def upkeep(name: str, what: Upkeep, body: Mapping[str, Any] | None = None) -> Call[Job]:
    """Start a job on a collection."""
    return _once(Call("POST", f"{_collection_path(name)}/{what}", _as(Job), body=body))


def jobs(limit: int, after: str | None) -> Call[Page[Job]]:
    """Jobs, newest first."""
    return Call("GET", "/v1/jobs", _as(Page[Job]), _page(limit, after), repeatable=True)


def job(job_id: str) -> Call[Job]:
    """One job."""
    return Call("GET", _job_path(job_id), _as(Job), repeatable=True)


def job_over(job_id: str) -> Call[bool]:
    """Whether a job has ended."""
    return Call("GET", _job_path(job_id), lambda response: _as(Job)(response).ended, repeatable=True)


def job_cancel(job_id: str) -> Call[Job]:
    """End a job."""
    return Call("POST", f"{_job_path(job_id)}/cancel", _as(Job), repeatable=True)


def job_retry(job_id: str) -> Call[Job]:
    """Run a failed or cancelled job again."""
    return Call("POST", f"{_job_path(job_id)}/retry", _as(Job))


def job_events(job_id: str, after: int) -> Call[None]:
    """What happened in a job since event number `after`, and what happens."""
    return _events(f"{_job_path(job_id)}/events", after)


def file_part(file: Path | str | tuple[str, bytes | IO[bytes]]) -> Path | tuple[str, bytes | IO[bytes]]:
    """A file to upload: its path, or its name and what is in it."""
    return Path(file) if isinstance(file, str) else file


def _once(call: Call[T], key: str | None = None) -> Call[T]:
    """The same under a key: the server does what comes with one key only once, so that it can be sent again."""
    return replace(call, headers={**call.headers, "Idempotency-Key": key or uuid.uuid4().hex}, repeatable=True)


def _search(query: str, options: SearchOptions, key: str | None, **how: bool) -> Call[SearchResponse]:
    deadline = options.get("deadline_s")
    call = Call(
        "POST",
        "/v1/search",
        _as(SearchResponse),
        body={"query": query, **_options(options), **how},
        timeout_s=SEARCH_S if deadline is None else deadline + BEYOND_DEADLINE_S,
    )
    return _once(call, key)


def _events(path: str, after: int) -> Call[None]:
    call = Call("GET", path, _nothing, repeatable=True, timeout_s=SILENCE_S)
    return _events_of(replace(call, headers={"Last-Event-ID": str(after)} if after else {}))


def _events_of(call: Call[Any]) -> Call[None]:
    headers = {**call.headers, "Accept": "text/event-stream"}
    return replace(call, headers=headers, read=_nothing, stream=True)


def _options(options: SearchOptions | RetrieveOptions) -> dict[str, Any]:
    given = _given(**options)
    if isinstance(named := given.get("collections"), str):
        given["collections"] = [named]
    return given


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _page(limit: int, after: str | None) -> dict[str, str | int]:
    return _given(limit=limit, after=after)


def _search_path(search_id: str) -> str:
    return f"/v1/searches/{_segment(search_id, 'a search id')}"


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{_segment(job_id, 'a job id')}"


def _collection_path(name: str) -> str:
    return f"/v1/collections/{_segment(name, 'the name of a collection')}"


def _document_path(name: str, document_id: str) -> str:
    return f"{_collection_path(name)}/documents/{_segment(document_id, 'a document id')}"


def _segment(text: str, what: str) -> str:
    """Text as one segment of a path. Dots are encoded too: `..` would be taken for the folder above."""
    if not text:
        raise ValueError(f"{what} is empty")
    try:
        return quote(text, safe="").replace(".", "%2E")
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds lone surrogates, which no URL can carry") from None


def _as(model: type[M]) -> Callable[[httpx.Response], M]:
    """Reads a response as a model."""

    def read(response: httpx.Response) -> M:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "the body"
            raise InvalidReply(
                f"the response is not what a Thresher server sends ({place}: {first['msg']}); is base_url right, and "
                "the server's release the same as the client's?",
                status=response.status_code,
                request_id=response.headers.get("x-request-id"),
            ) from None

    return read


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        value = json.loads(response.content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidReply("the response is no JSON object; is base_url right?", status=response.status_code)
    return value


def _nothing(response: httpx.Response) -> None:
    return None


def _fetched(response: httpx.Response) -> Fetched:
    return _as(Fetched)(response)
