"""Runs searches: so many at once, background ones in turns, each told to its log and kept when it has ended."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError, explain_to_client
from thresher.api.private import for_client
from thresher.api.schema import SearchResponse, search_response
from thresher.api.service.searching.queue import FairQueue
from thresher.api.service.searching.running import failed, unfinished, with_head
from thresher.api.service.stopping import stopping_error
from thresher.api.traces import with_trace_saved
from thresher.corpus.paths import qualified
from thresher.engine.events import Event, EventType
from thresher.engine.federated import federated_search
from thresher.engine.limits import Limits, Stopped
from thresher.engine.reporting import ENDINGS, STATUS
from thresher.engine.requests import Effort, SearchResult, Usage

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.service.collecting.collecting import Collecting
    from thresher.api.service.registry import Registry
    from thresher.api.service.releases.serving import Releases
    from thresher.api.service.searching.running import Running
    from thresher.api.service.searching.store import SearchStore
    from thresher.engine.requests import SearchRequest, StopReason
    from thresher.engine.search import SearchEngine

logger = logging.getLogger("thresher.api")

MAX_WAITING = 1_000
"""Background searches of one tenant that may wait."""

LAST_S = 5.0
"""How long searches that were told to stop may take to do so; then they are broken off."""

ENDING_EVENTS = (EventType.SEARCH_COMPLETED, EventType.SEARCH_FAILED)


class Runner:
    """The searches that run here or wait to. All of it belongs to one event loop.

    Foreground searches run at once or are refused; background ones wait their turn, and take three quarters of the
    places at most.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        store: SearchStore,
        *,
        on_refused: Callable[[Running], None],
        releases: Releases | None = None,
        collecting: Collecting | None = None,
    ) -> None:
        """`on_refused` is told of a search that could not be run and leaves its idempotency key free.

        `releases` says which policy searches; None: that of the registry. `collecting` is told of searches that have
        ended, once their callers have been.
        """
        self._releases = releases
        self._collecting = collecting
        self._settings = settings
        self._registry = registry
        self._store = store
        self._on_refused = on_refused
        self._live: dict[str, Running] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._queue: FairQueue[Running] = FairQueue()
        self._background: Counter[str] = Counter()
        self._unkept: dict[str, tuple[Running, Callable[[], None]]] = {}
        self.closing = False

    @property
    def active(self) -> int:
        """How many run."""
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        """How many wait for a free place."""
        return len(self._queue)

    def find(self, search_id: str) -> Running | None:
        """One that runs or waits, or has ended and could not be kept yet."""
        if search_id in self._unkept:
            return self._unkept[search_id][0]
        return self._live.get(search_id)

    def check_room(self, tenant: str, *, background: bool) -> None:
        """Refuse one more search.

        Raises:
            ApiError: 429, there is no room for it; 503, the server is stopping.
        """
        most = self._settings.max_searches
        if self.closing:
            raise stopping_error(self._settings.shutdown_grace_s)
        if not background and len(self._tasks) >= most:
            raise _too_many(f"this server runs {most} searches at once, and does; try again soon, or in the background")
        if background and self._queue.waiting(tenant) >= MAX_WAITING:
            raise _too_many(f"{MAX_WAITING:,} of your background searches wait already; try again when some have run")

    def run(self, running: Running) -> None:
        """Begin a foreground search, whose row says already that it runs."""
        self._live[running.id] = running
        self._begin(running)

    def enqueue(self, running: Running) -> None:
        """Begin a background search when it is its turn, which may be at once."""
        self._live[running.id] = running
        self._queue.put(running.asked.tenant, running)
        self._dispatch()
        if running.status == "queued":
            running.log.append("search.queued", {"search_id": running.id, "query": running.asked.request.query})

    def cancelled(self, running: Running) -> None:
        """Its caller wants no more of a search; one that runs sees that by itself."""
        if self._queue.remove(running.asked.tenant, running):
            response = unfinished(running.asked, "cancelled").model_copy(update={"stop_reason": "cancelled"})
            self._live.pop(running.id, None)
            self._keep_end(running, response)

    async def close(self, grace_s: float) -> None:
        """Begin no more; let those that run end for so many seconds, then stop them.

        Foreground ones answer with what they have; background ones and the queue are left to the next server.
        """
        self.closing = True
        for running in self._queue.drain():
            self._leave(running)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_s)
        for search_id in self._tasks:
            self._live[search_id].stop.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=LAST_S)
        for task in list(self._tasks.values()):
            task.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        self.keep_again()

    def keep_again(self) -> None:
        """Try once more to keep what could not be kept: the disk was full, or another process held the database."""
        for running, keep in list(self._unkept.values()):
            del self._unkept[running.id]
            if not self._keep(running, keep):
                return

    def forget(self, search_id: str) -> None:
        """It shall not be kept any more."""
        self._unkept.pop(search_id, None)

    def _dispatch(self) -> None:
        """Begin as many background searches as there are places for."""
        most = max(1, self._settings.max_searches * 3 // 4)
        while not self.closing and len(self._tasks) < self._settings.max_searches and self._background.total() < most:
            running = self._queue.take(self._background)
            if running is None:
                return
            try:
                self._store.begun(running.id)
            except (sqlite3.Error, OSError) as error:
                logger.error("that search %s begins could not be kept: %s", running.id, error)
            self._begin(running)

    def _begin(self, running: Running) -> None:
        running.status = "running"
        if running.asked.background:
            self._background[running.asked.tenant] += 1
        self._tasks[running.id] = asyncio.create_task(self._run(running), name=running.id)

    async def _run(self, running: Running) -> None:
        asked = running.asked
        try:
            result = await self._search(running)
            if self.closing and asked.background and running.stop.is_set() and not running.cancelled:
                self._leave(running)
            else:
                await self._end(running, result)
        except asyncio.CancelledError:  # the loop ends: its row stays as that of a server that was killed
            running.fail(server_stopped(), running.seen())
            raise
        except Exception as error:
            self._fail(running, error)
        finally:
            self._live.pop(asked.id, None)
            self._tasks.pop(asked.id, None)
            if asked.background:
                self._background[asked.tenant] -= 1
            self._dispatch()

    async def _search(self, running: Running) -> SearchResult:
        asked = running.asked
        started = time.monotonic()

        def tell(event: Event) -> None:
            if event.type not in ENDING_EVENTS:  # the last word is ours, with the response
                data = dict(event.data)
                if isinstance(said := data.get("message"), str):
                    data["message"] = for_client(said)
                running.log.append(str(event.type), data)

        limits = Limits.of(asked.request.deadline_s, running.stop)
        async with AsyncExitStack() as stack:
            engines: dict[str, SearchEngine] = {}
            broken: dict[str, Exception] = {}
            for name in asked.collections:
                opening = stack.enter_async_context(self._registry.use(qualified(asked.tenant, name)))
                try:
                    engines[name] = await limits.within(opening)
                except Stopped as stop:
                    tell(Event(EventType.SEARCH_CREATED, {"search_id": asked.id, "query": asked.request.query}))
                    return _nothing(running, stop.reason)
                except Exception as error:  # one that cannot be opened must not keep the others from being searched
                    broken[name] = error
            if not engines:
                raise next(iter(broken.values()))
            result = await self._ask(running, engines, tell, time.monotonic() - started)
        warnings = [f"collection {name!r} could not be searched: {_explained(e)}" for name, e in broken.items()]
        return replace(result, warnings=(*warnings, *result.warnings))

    async def _ask(
        self, running: Running, engines: dict[str, SearchEngine], tell: Callable[[Event], None], waited_s: float
    ) -> SearchResult:
        """The search proper; what it took to open the collections counts into its deadline."""
        asked, request = running.asked, running.asked.request
        if request.deadline_s is not None:
            request = replace(request, deadline_s=max(0.001, request.deadline_s - waited_s))
        if self._releases is None or request.effort is Effort.MINIMAL:
            return await self._served(running, request, engines, tell)
        async with self._releases.serving(asked.unit or asked.id) as serving:
            running.serving = serving
            chosen = {name: serving.engine(engine) for name, engine in engines.items()}
            return await self._served(running, request, chosen, tell)

    async def _served(
        self,
        running: Running,
        request: SearchRequest,
        engines: dict[str, SearchEngine],
        tell: Callable[[Event], None],
    ) -> SearchResult:
        """The search with the engines of the release that serves it."""
        asked = running.asked
        if len(asked.collections) == 1:
            [engine] = engines.values()
            return await engine.search(request, on_event=tell, cancel=running.stop, search_id=asked.id)
        return await federated_search(
            engines,
            request,
            on_event=tell,
            cancel=running.stop,
            search_id=asked.id,
            explain=_explained,
        )

    async def _end(self, running: Running, result: SearchResult) -> None:
        if self._settings.save_traces and result.trajectory is not None:
            result = await asyncio.to_thread(with_trace_saved, result, name_place=False)
        response = search_response(result, include_trace=running.asked.body.include_trace)
        response = with_head(response, running.asked)
        said: dict[str, Any] = {
            name: [for_client(each) for each in getattr(response, name)] for name in ("warnings", "notices")
        }
        if running.serving is not None and running.serving.release:
            said = {**said, "release": running.serving.release, "arm": running.serving.arm}
        response = response.model_copy(update=said)
        if running.cancelled and response.stop_reason == "cancelled":
            response = response.model_copy(update={"status": "cancelled"})
        self._keep_end(running, response)
        if self._collecting is not None:
            self._collecting.ended(running, result, response)

    def _keep_end(self, running: Running, response: SearchResponse) -> None:
        tell_end(running, response)
        with_trace = not self._settings.save_traces
        self._keep(running, lambda: self._store.ended(response, running.log.kept, with_trace=with_trace))
        running.finish(response)

    def _fail(self, running: Running, error: Exception) -> None:
        asked = running.asked
        problem, log = explain_to_client(error)
        if log and (asked.background or running.log.last):  # what a request raises is logged with the request
            logger.error("search %s failed: %s", asked.id, error, exc_info=error)
        response = failed(asked, problem)
        refused = not asked.background and not running.log.last
        if not refused:
            tell_end(running, response)

        def keep() -> None:
            if refused:  # it never was a search
                self._store.remove(asked.tenant, asked.id)
            else:
                self._store.failed(asked.id, problem, running.log.kept)
            if refused or problem.status >= 500:
                self._on_refused(running)

        self._keep(running, keep)
        running.fail(error, response)

    def _keep(self, running: Running, keep: Callable[[], None]) -> bool:
        """Keep how a search ended; whether that could be done. Where not, it is found here until it can."""
        try:
            keep()
        except (sqlite3.Error, OSError) as error:
            logger.error("how search %s ended cannot be kept yet: %s", running.id, error)
            self._unkept[running.id] = running, keep
            return False
        return True

    def _leave(self, running: Running) -> None:
        """Leave it to the next server. Its events end without an end: listeners come back and hear of it again."""
        try:
            self._store.left(running.id)
        except (sqlite3.Error, OSError) as error:  # then the next server takes it for one that this one died of
            logger.error("that search %s waits for the next start could not be kept: %s", running.id, error)
        self._live.pop(running.id, None)
        running.fail(server_stopped(), running.seen())


def tell_end(running: Running, response: SearchResponse) -> None:
    """Tell the last event of a search, which has the whole response."""
    kind = EventType.SEARCH_FAILED if response.status == "failed" else EventType.SEARCH_COMPLETED
    data: dict[str, Any] = {
        "search_id": response.id,
        "status": response.status,
        "stop_reason": response.stop_reason,
        "sufficient": response.sufficient,
        "response": response,
    }
    running.log.append(str(kind), data)


def server_stopped() -> ApiError:
    """What a search raises that the server did not see through."""
    message = "the server was stopped before this search had ended; send it again"
    return ApiError(503, "server_stopped", message, type="api_error")


def _nothing(running: Running, reason: StopReason) -> SearchResult:
    """A search that was stopped before its collections were open."""
    return SearchResult(
        id=running.id,
        query=running.asked.request.query,
        status=STATUS.get(reason, "partial"),
        results=(),
        stop_reason=reason,
        sufficient=None,
        justification=None,
        missing=(),
        usage=Usage(),
        notices=(ENDINGS[reason],),
    )


def _explained(error: BaseException) -> str:
    """What kept a collection from being searched, as a client may read it."""
    problem, log = explain_to_client(error)
    if log:
        logger.error("a collection could not be searched: %s", error, exc_info=error)
    return problem.message


def _too_many(message: str) -> ApiError:
    return ApiError(429, "too_many_searches", message, type="rate_limit_error", retry_after_s=1)
