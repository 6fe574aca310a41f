"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, Unpack

import httpx
from pydantic import BaseModel

from thresher.api.client import calls
from thresher.api.client.calls import Call, RetrieveOptions, SearchOptions
from thresher.api.client.errors import JobFailed, RequestTimeout
from thresher.api.client.events import Event, Following, JobEvent, response_of
from thresher.api.client.models import Collection, Document, Fetched, Job, Page, PutReport, Retrieved, SearchSummary
from thresher.api.client.retries import Reply, Retries, Wait, exchange, unreachable
from thresher.api.client.settings import Place, certificates, place
from thresher.api.schema import SearchResponse

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Client:
    """A Thresher server. Safe to share between threads; close it, or use it in a `with` block.

    Every method raises a `ThresherError` where the server refuses or cannot be reached.

    Args:
        base_url: where the server is; unset: THRESHER_URL, else http://127.0.0.1:8420.
        api_key: unset: THRESHER_CLIENT_KEY, else none, which a server on loopback takes.
        timeout_s: how long any response may take, in seconds; unset: 60, and for searches their deadline, else 600.
        retries: how patiently requests are sent again that were turned away or got lost.
        http: a client of httpx to send with, for certificates or proxies of one's own; it is not closed.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float | None = None,
        retries: Retries | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self._place: Place = place(base_url, api_key)
        self._timeout_s = timeout_s
        self._retries = retries or Retries()
        self._owned = http is None
        self._http = http or httpx.Client(verify=certificates())

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._place.base_url

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owned:
            self._http.close()

    def search(
        self,
        query: str,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResponse:
        """Search and wait for the end. A search that failed is told by its `status`, as one that was cut short."""
        return self._send(calls.search(query, options, idempotency_key), timeout_s)

    @contextmanager
    def stream(self, query: str, **options: Unpack[SearchOptions]) -> Iterator[Iterator[Event]]:
        """Search and hear of it as it goes; the last event is a `SearchEnded`. Leaving the block ends the search.

        Use it as `with client.stream("…") as events`, and then `for event in events`.
        """
        following = Following("the search", losses=0)
        with self._open(calls.search_stream(query, options)) as response:
            yield self._all_events(response, following)

    def start(
        self, query: str, *, idempotency_key: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchHandle:
        """Search in the background. It goes on without its caller, and after a restart of the server."""
        return SearchHandle(self, self._send(calls.search_start(query, options, idempotency_key)).id)

    def searching(self, search_id: str) -> SearchHandle:
        """A search that was started before, by its id. Asks nothing of the server yet."""
        return SearchHandle(self, search_id)

    def searches(self) -> Iterator[SearchSummary]:
        """Searches that the server keeps, newest first."""
        return self._pages(calls.searches)

    def feedback(
        self,
        search_id: str,
        rating: float | Literal["up", "down"],
        *,
        evidence: Mapping[str, bool] | None = None,
        comment: str | None = None,
        answer: str | None = None,
    ) -> str:
        """Say what a search was worth: from -1, or "down", to 1, or "up"; `evidence` says which results were of use."""
        return self._send(calls.feedback(search_id, rating, evidence, comment, answer))

    def signal(
        self,
        search_id: str,
        kind: Literal["opened", "cited", "abandoned"],
        evidence_id: str | None = None,
    ) -> bool:
        """Say what the user did with a search: opened or cited a result, by its id, or abandoned it.

        Whether that is collected: only what was done after a search that is.
        """
        return self._send(calls.signal(search_id, kind, evidence_id))

    def retrieve(self, query: str, **options: Unpack[RetrieveOptions]) -> Retrieved:
        """Passages without a policy, by hybrid search or as a regular expression matches them."""
        return self._send(calls.retrieve(query, options))

    def fetch(
        self,
        document_id: str,
        *,
        collection: str | None = None,
        start: int | None = None,
        max_tokens: int | None = None,
    ) -> Fetched:
        """Text of a document from character `start` on, of about `max_tokens`; `next_start` is where to go on."""
        return self._send(calls.fetch(document_id, collection, start, max_tokens))

    def collections(self) -> Iterator[Collection]:
        """The collections that the key may see."""
        return self._pages(calls.collections)

    def collection(self, name: str) -> Collection:
        """One collection."""
        return self._send(calls.collection(name))

    def create_collection(self, name: str, *, embedder: str | None = None) -> Collection:
        """Make an empty collection."""
        return self._send(calls.collection_create(name, embedder))

    def delete_collection(self, name: str) -> None:
        """Delete a collection and all that is in it."""
        self._send(calls.collection_delete(name))

    def documents(self, collection: str) -> Iterator[Document]:
        """The documents of a collection, without their texts."""
        return self._pages(lambda limit, after: calls.documents(collection, limit, after))

    def document(self, collection: str, document_id: str) -> Document:
        """One document with its text."""
        return self._send(calls.document(collection, document_id))

    def put_documents(self, collection: str, documents: Sequence[Mapping[str, Any]]) -> PutReport:
        """Put documents of `id`, `text` and, if there are any, `title`, `url`, `metadata`; says what became of them."""
        return self._send(calls.documents_put(collection, documents))

    def delete_document(self, collection: str, document_id: str) -> None:
        """Delete a document."""
        self._send(calls.document_delete(collection, document_id))

    def upload(self, collection: str, *files: Path | str | tuple[str, bytes | IO[bytes]]) -> JobHandle:
        """Send files, by path or as name and content, to be indexed by a job."""
        with ExitStack() as opened:
            parts: list[tuple[str, bytes | IO[bytes]]] = []
            for part in map(calls.file_part, files):
                named = (part.name, opened.enter_context(part.open("rb"))) if isinstance(part, Path) else part
                parts.append(named)
            return JobHandle(self, self._send(calls.upload(collection, parts)))

    def sync(self, collection: str, *, source_id: str | None = None) -> JobHandle:
        """Read again what the server's operator ingested, or one source of it."""
        body = {} if source_id is None else {"source_id": source_id}
        return JobHandle(self, self._send(calls.upkeep(collection, "sync", body)))

    def maintain(self, collection: str, what: Literal["verify", "rebuild", "compact"]) -> JobHandle:
        """Check a collection's indexes, build them anew, or make them small."""
        return JobHandle(self, self._send(calls.upkeep(collection, what)))

    def jobs(self) -> Iterator[Job]:
        """Jobs, newest first."""
        return self._pages(calls.jobs)

    def job(self, job_id: str) -> JobHandle:
        """A job that was started before."""
        return JobHandle(self, self._send(calls.job(job_id)))

    def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        return call.read(self._exchange(call.within(timeout_s or self._timeout_s)))

    @contextmanager
    def _open(self, call: Call[Any]) -> Iterator[httpx.Response]:
        response = self._exchange(call)
        try:
            yield response
        finally:
            response.close()

    def _exchange(self, call: Call[Any]) -> httpx.Response:
        steps = exchange(call, self._retries)
        step: Call[Any] | Wait = next(steps)
        while True:
            reply: Reply | None = None
            if isinstance(step, Wait):
                time.sleep(step.seconds)
            else:
                reply = self._try(step)
            try:
                step = steps.send(reply)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response

    def _try(self, call: Call[Any]) -> Reply:
        try:
            response = self._http.send(call.request(self._http, self._place), stream=call.stream)
            if call.stream and not response.is_success:
                response.read()
        except httpx.RequestError as error:
            return error
        return response

    def _pages(self, page: Callable[[int, str | None], Call[Page[M]]]) -> Iterator[M]:
        after: str | None = None
        while True:
            got = self._send(page(calls.PAGE, after))
            yield from got.data
            after = got.next
            if not got.has_more or after is None:
                return

    def _events(self, response: httpx.Response, following: Following) -> Iterator[Event]:
        """The events of one connection."""
        following.connected()
        try:
            for piece in response.iter_bytes():
                yield from following.feed(piece)
                if following.ended:
                    return
        except httpx.RequestError as error:
            following.broken = unreachable(error)

    def _all_events(self, response: httpx.Response, following: Following) -> Iterator[Event]:
        """The events of the only connection there can be."""
        yield from self._events(response, following)
        if not following.ended:
            following.lost()

    def _follow(self, call: Callable[[int], Call[None]], over: Call[bool], following: Following) -> Iterator[Event]:
        """Events to the last one, over as many connections as that takes."""
        while True:
            try:
                with self._open(following.bounded(call(following.last))) as response:
                    yield from self._events(response, following)
            except RequestTimeout:
                following.check()  # if its own time is up, that is what to say
                raise
            if following.ended:
                return
            closed = following.broken is None and not following.brought
            if closed and self._send(over):  # there is nothing past what was known
                return
            following.lost()


class SearchHandle:
    """A search in the background."""

    def __init__(self, client: Client, search_id: str) -> None:
        self._client = client
        self.id = search_id

    def __repr__(self) -> str:
        return f"SearchHandle({self.id!r})"

    def get(self) -> SearchResponse:
        """How it stands."""
        return self._client._send(calls.search_of(self.id))

    def events(self, *, after: int = 0, timeout_s: float | None = None) -> Iterator[Event]:
        """What happened since event `after`, and what happens, to the end; a broken connection is made again."""
        following = Following(f"search {self.id}", after=after, losses=self._client._retries.limit, timeout_s=timeout_s)
        return self._client._follow(
            lambda last: calls.search_events(self.id, last), calls.search_over(self.id), following
        )

    def wait(
        self, timeout_s: float | None = None, *, on_event: Callable[[Event], object] | None = None
    ) -> SearchResponse:
        """Wait for its end. It goes on when `timeout_s` has passed and this raises RequestTimeout."""
        last = None
        for last in self.events(timeout_s=timeout_s):
            if on_event is not None:
                on_event(last)
        return response_of(last, f"search {self.id}")

    def cancel(self) -> SearchResponse:
        """End it with what it has."""
        return self._client._send(calls.search_of(self.id, cancel=True))

    def delete(self) -> None:
        """Forget it, its trace and its events."""
        self._client._send(calls.search_delete(self.id))

    def trace(self) -> dict[str, Any]:
        """Its trajectory: every turn, call and edit."""
        return self._client._send(calls.search_trace(self.id))


class JobHandle:
    """A job, as it was when the server last told of it (`job`)."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client = client
        self.job = job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, {self.job.kind!r}, {self.job.status!r})"

    def get(self) -> Job:
        """How it stands."""
        self.job = self._client._send(calls.job(self.id))
        return self.job

    def events(self, *, after: int = 0, timeout_s: float | None = None) -> Iterator[Event]:
        """What happened since event `after`, and what happens, to the end; a broken connection is made again."""
        return self._follow(self._following(after, timeout_s))

    def wait(self, timeout_s: float | None = None, *, on_progress: Callable[[Job], object] | None = None) -> Job:
        """Wait for its end; `on_progress` is called with the job whenever it has come further.

        Raises:
            JobFailed: it failed or was cancelled.
            RequestTimeout: `timeout_s` has passed; the job goes on.
        """
        following = self._following(0, timeout_s)
        while True:
            for event in self._follow(following):
                if isinstance(event, JobEvent):
                    self.job = event.job
                    if on_progress is not None:
                        on_progress(event.job)
            if self.get().ended:
                break
            following.ended = False  # what ended was an earlier try of a job that was retried
        if self.job.status != "succeeded":
            raise JobFailed(self.job)
        return self.job

    def cancel(self) -> Job:
        """End it; what it has done stays."""
        self.job = self._client._send(calls.job_cancel(self.id))
        return self.job

    def retry(self) -> Job:
        """Run it again, if it failed or was cancelled."""
        self.job = self._client._send(calls.job_retry(self.id))
        return self.job

    def _following(self, after: int, timeout_s: float | None) -> Following:
        return Following(f"job {self.id}", after=after, losses=self._client._retries.limit, timeout_s=timeout_s)

    def _follow(self, following: Following) -> Iterator[Event]:
        return self._client._follow(lambda last: calls.job_events(self.id, last), calls.job_over(self.id), following)
