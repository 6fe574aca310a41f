"""The asynchronous client: what `blocking` is, with `await`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
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


class AsyncClient:
    """A Thresher server. Belongs to one event loop; close it, or use it in an `async with` block.

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
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._place: Place = place(base_url, api_key)
        self._timeout_s = timeout_s
        self._retries = retries or Retries()
        self._owned = http is None
        self._http = http or httpx.AsyncClient(verify=certificates())

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._place.base_url

    def __repr__(self) -> str:
        return f"AsyncClient({self.base_url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def search(
        self,
        query: str,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> SearchResponse:
        """Search and wait for the end. A search that failed is told by its `status`, as one that was cut short."""
        return await self._send(calls.search(query, options, idempotency_key), timeout_s)

    @asynccontextmanager
    async def stream(self, query: str, **options: Unpack[SearchOptions]) -> AsyncIterator[AsyncIterator[Event]]:
        """Search and hear of it as it goes; the last event is a `SearchEnded`. Leaving the block ends the search.

        Use it as `async with client.stream("…") as events`, and then `async for event in events`.
        """
        following = Following("the search", losses=0)
        async with self._open(calls.search_stream(query, options)) as response:
            yield self._all_events(response, following)

    async def start(
        self, query: str, *, idempotency_key: str | None = None, **options: Unpack[SearchOptions]
    ) -> AsyncSearch:
        """Search in the background. It goes on without its caller, and after a restart of the server."""
        started = await self._send(calls.search_start(query, options, idempotency_key))
        return AsyncSearch(self, started.id)

    def searching(self, search_id: str) -> AsyncSearch:
        """A search that was started before, by its id. Asks nothing of the server yet."""
        return AsyncSearch(self, search_id)

    def searches(self) -> AsyncIterator[SearchSummary]:
        """Searches that the server keeps, newest first."""
        return self._pages(calls.searches)

    async def feedback(
        self,
        search_id: str,
        rating: float | Literal["up", "down"],
        *,
        evidence: Mapping[str, bool] | None = None,
        comment: str | None = None,
        answer: str | None = None,
    ) -> str:
        """Say what a search was worth: from -1, or "down", to 1, or "up"; `evidence` says which results were of use."""
        return await self._send(calls.feedback(search_id, rating, evidence, comment, answer))

    async def signal(
        self,
        search_id: str,
        kind: Literal["opened", "cited", "abandoned"],
        evidence_id: str | None = None,
    ) -> bool:
        """Say what the user did with a search: opened or cited a result, by its id, or abandoned it.

        Whether that is collected: only what was done after a search that is.
        """
        return await self._send(calls.signal(search_id, kind, evidence_id))

    async def retrieve(self, query: str, **options: Unpack[RetrieveOptions]) -> Retrieved:
        """Passages without a policy, by hybrid search or as a regular expression matches them."""
        return await self._send(calls.retrieve(query, options))

    async def fetch(
        self,
        document_id: str,
        *,
        collection: str | None = None,
        start: int | None = None,
        max_tokens: int | None = None,
    ) -> Fetched:
        """Text of a document from character `start` on, of about `max_tokens`; `next_start` is where to go on."""
        return await self._send(calls.fetch(document_id, collection, start, max_tokens))

    def collections(self) -> AsyncIterator[Collection]:
        """The collections that the key may see."""
        return self._pages(calls.collections)

    async def collection(self, name: str) -> Collection:
        """One collection."""
        return await self._send(calls.collection(name))

    async def create_collection(self, name: str, *, embedder: str | None = None) -> Collection:
        """Make an empty collection."""
        return await self._send(calls.collection_create(name, embedder))

    async def delete_collection(self, name: str) -> None:
        """Delete a collection and all that is in it."""
        await self._send(calls.collection_delete(name))

    def documents(self, collection: str) -> AsyncIterator[Document]:
        """The documents of a collection, without their texts."""
        return self._pages(lambda limit, after: calls.documents(collection, limit, after))

    async def document(self, collection: str, document_id: str) -> Document:
        """One document with its text."""
        return await self._send(calls.document(collection, document_id))

    async def put_documents(self, collection: str, documents: Sequence[Mapping[str, Any]]) -> PutReport:
        """Put documents of `id`, `text` and, if there are any, `title`, `url`, `metadata`; says what became of them."""
        return await self._send(calls.documents_put(collection, documents))

    async def delete_document(self, collection: str, document_id: str) -> None:
        """Delete a document."""
        await self._send(calls.document_delete(collection, document_id))

    async def upload(self, collection: str, *files: Path | str | tuple[str, bytes | IO[bytes]]) -> AsyncJob:
        """Send files, by path or as name and content, to be indexed by a job."""
        with ExitStack() as opened:
            parts: list[tuple[str, bytes | IO[bytes]]] = []
            for part in map(calls.file_part, files):
                named = (part.name, opened.enter_context(part.open("rb"))) if isinstance(part, Path) else part
                parts.append(named)
            return AsyncJob(self, await self._send(calls.upload(collection, parts)))

    async def sync(self, collection: str, *, source_id: str | None = None) -> AsyncJob:
        """Read again what the server's operator ingested, or one source of it."""
        body = {} if source_id is None else {"source_id": source_id}
        return AsyncJob(self, await self._send(calls.upkeep(collection, "sync", body)))

    async def maintain(self, collection: str, what: Literal["verify", "rebuild", "compact"]) -> AsyncJob:
        """Check a collection's indexes, build them anew, or make them small."""
        return AsyncJob(self, await self._send(calls.upkeep(collection, what)))

    def jobs(self) -> AsyncIterator[Job]:
        """Jobs, newest first."""
        return self._pages(calls.jobs)

    async def job(self, job_id: str) -> AsyncJob:
        """A job that was started before."""
        return AsyncJob(self, await self._send(calls.job(job_id)))

    async def _send(self, call: Call[T], timeout_s: float | None = None) -> T:
        return call.read(await self._exchange(call.within(timeout_s or self._timeout_s)))

    @asynccontextmanager
    async def _open(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        response = await self._exchange(call)
        try:
            yield response
        finally:
            await response.aclose()

    async def _exchange(self, call: Call[Any]) -> httpx.Response:
        steps = exchange(call, self._retries)
        step: Call[Any] | Wait = next(steps)
        while True:
            reply: Reply | None = None
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            else:
                reply = await self._try(step)
            try:
                step = steps.send(reply)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response

    async def _try(self, call: Call[Any]) -> Reply:
        try:
            response = await self._http.send(call.request(self._http, self._place), stream=call.stream)
            if call.stream and not response.is_success:
                await response.aread()
        except httpx.RequestError as error:
            return error
        return response

    async def _pages(self, page: Callable[[int, str | None], Call[Page[M]]]) -> AsyncIterator[M]:
        after: str | None = None
        while True:
            got = await self._send(page(calls.PAGE, after))
            for item in got.data:
                yield item
            after = got.next
            if not got.has_more or after is None:
                return

    async def _events(self, response: httpx.Response, following: Following) -> AsyncIterator[Event]:
        """The events of one connection."""
        following.connected()
        try:
            async for piece in response.aiter_bytes():
                for event in following.feed(piece):
                    yield event
                if following.ended:
                    return
        except httpx.RequestError as error:
            following.broken = unreachable(error)

    async def _all_events(self, response: httpx.Response, following: Following) -> AsyncIterator[Event]:
        """The events of the only connection there can be."""
        async for event in self._events(response, following):
            yield event
        if not following.ended:
            following.lost()

    async def _follow(
        self, call: Callable[[int], Call[None]], over: Call[bool], following: Following
    ) -> AsyncIterator[Event]:
        """Events to the last one, over as many connections as that takes."""
        while True:
            try:
                async with self._open(following.bounded(call(following.last))) as response:
                    async for event in self._events(response, following):
                        yield event
            except RequestTimeout:
                following.check()  # if its own time is up, that is what to say
                raise
            if following.ended:
                return
            closed = following.broken is None and not following.brought
            if closed and await self._send(over):  # there is nothing past what was known
                return
            following.lost()


class AsyncSearch:
    """A search in the background."""

    def __init__(self, client: AsyncClient, search_id: str) -> None:
        self._client = client
        self.id = search_id

    def __repr__(self) -> str:
        return f"AsyncSearch({self.id!r})"

    async def get(self) -> SearchResponse:
        """How it stands."""
        return await self._client._send(calls.search_of(self.id))

    def events(self, *, after: int = 0, timeout_s: float | None = None) -> AsyncIterator[Event]:
        """What happened since event `after`, and what happens, to the end; a broken connection is made again."""
        following = Following(f"search {self.id}", after=after, losses=self._client._retries.limit, timeout_s=timeout_s)
        return self._client._follow(
            lambda last: calls.search_events(self.id, last), calls.search_over(self.id), following
        )

    async def wait(
        self, timeout_s: float | None = None, *, on_event: Callable[[Event], object] | None = None
    ) -> SearchResponse:
        """Wait for its end. It goes on when `timeout_s` has passed and this raises RequestTimeout."""
        last = None
        async for last in self.events(timeout_s=timeout_s):
            if on_event is not None:
                on_event(last)
        return response_of(last, f"search {self.id}")

    async def cancel(self) -> SearchResponse:
        """End it with what it has."""
        return await self._client._send(calls.search_of(self.id, cancel=True))

    async def delete(self) -> None:
        """Forget it, its trace and its events."""
        await self._client._send(calls.search_delete(self.id))

    async def trace(self) -> dict[str, Any]:
        """Its trajectory: every turn, call and edit."""
        return await self._client._send(calls.search_trace(self.id))


class AsyncJob:
    """A job, as it was when the server last told of it (`job`)."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        self._client = client
        self.job = job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r}, {self.job.kind!r}, {self.job.status!r})"

    async def get(self) -> Job:
        """How it stands."""
        self.job = await self._client._send(calls.job(self.id))
        return self.job

    def events(self, *, after: int = 0, timeout_s: float | None = None) -> AsyncIterator[Event]:
        """What happened since event `after`, and what happens, to the end; a broken connection is made again."""
        return self._follow(self._following(after, timeout_s))

    async def wait(self, timeout_s: float | None = None, *, on_progress: Callable[[Job], object] | None = None) -> Job:
        """Wait for its end; `on_progress` is called with the job whenever it has come further.

        Raises:
            JobFailed: it failed or was cancelled.
            RequestTimeout: `timeout_s` has passed; the job goes on.
        """
        following = self._following(0, timeout_s)
        while True:
            async for event in self._follow(following):
                if isinstance(event, JobEvent):
                    self.job = event.job
                    if on_progress is not None:
                        on_progress(event.job)
            if (await self.get()).ended:
                break
            following.ended = False  # what ended was an earlier try of a job that was retried
        if self.job.status != "succeeded":
            raise JobFailed(self.job)
        return self.job

    async def cancel(self) -> Job:
        """End it; what it has done stays."""
        self.job = await self._client._send(calls.job_cancel(self.id))
        return self.job

    async def retry(self) -> Job:
        """Run it again, if it failed or was cancelled."""
        self.job = await self._client._send(calls.job_retry(self.id))
        return self.job

    def _following(self, after: int, timeout_s: float | None) -> Following:
        return Following(f"job {self.id}", after=after, losses=self._client._retries.limit, timeout_s=timeout_s)

    def _follow(self, following: Following) -> AsyncIterator[Event]:
        return self._client._follow(lambda last: calls.job_events(self.id, last), calls.job_over(self.id), following)
