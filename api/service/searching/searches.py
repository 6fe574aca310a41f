"""Searches that go on independent of who listens: started, followed, found again, cancelled, and kept."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from thresher.api.errors import ApiError
from thresher.api.service.collecting.bodies import SignalBody, SignalReceipt
from thresher.api.service.collecting.marks import MAX_SIGNALS
from thresher.api.service.idempotency import Idempotency, fingerprint
from thresher.api.service.instance import Instance
from thresher.api.service.releases.units import unit_of
from thresher.api.service.searching.asking import collections_of, request_of
from thresher.api.service.searching.bodies import SearchBody
from thresher.api.service.searching.feedback import Feedback, FeedbackBody, FeedbackReceipt
from thresher.api.service.searching.log import EventLog, Told
from thresher.api.service.searching.orphans import Orphans, asked_of
from thresher.api.service.searching.runner import ENDING_EVENTS, Runner
from thresher.api.service.searching.running import Asked, Running, stored_error, stored_response
from thresher.api.service.searching.store import UNFINISHED, Row, SearchStore
from thresher.api.traces import TraceError, read_answer, read_traces, remove_trace, trace_path
from thresher.engine.search import new_search_id

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.schema import SearchResponse
    from thresher.api.service.collecting.collecting import Collecting
    from thresher.api.service.database import Database
    from thresher.api.service.principal import Principal
    from thresher.api.service.registry import Registry
    from thresher.api.service.releases.serving import Releases
    from thresher.engine.requests import Answer
    from thresher.engine.trajectory import Trajectory

logger = logging.getLogger("thresher.api")

ROUTE = "POST /v1/search"
"""What an idempotency key of a search stands for, whichever face the search came by."""

LOOK_EVERY_S = 30.0
"""How often a server looks for what others have left, and for what is too old."""

POLL_S = 1.0
"""How often to look after a search that another server runs."""


class Searches:
    """The searches of a server, running and kept. Methods belong to its event loop.

    A caller finds those of its tenant, and no others.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        database: Database,
        *,
        instance: Instance | None = None,
        releases: Releases | None = None,
        collecting: Collecting | None = None,
    ) -> None:
        """`releases` say which policy searches, `collecting` keeps searches to learn from. None: nothing does.

        `instance`: the server that they belong to; whoever gives one closes it. None: they are a server of their own.
        """
        self._settings = settings
        self._registry = registry
        self._instance = instance or Instance()
        self._owns_instance = instance is None
        self._store = SearchStore(database, keep_days=settings.keep_searches_days, keep_count=settings.keep_searches)
        self._feedback = Feedback(database)
        self.idempotency = Idempotency(database)
        self.collecting = collecting
        self._runner = Runner(
            settings, registry, self._store, on_refused=self._free_key, releases=releases, collecting=collecting
        )
        self._orphans = Orphans(settings, registry, self._store, self._runner, self._instance)
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take over what dead servers have left: background searches run again, foreground ones have failed."""
        self._instance.open()
        await self._look_around()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self, grace_s: float) -> None:
        """Start no more; let running ones end for `grace_s` seconds, then stop them.

        Foreground ones answer with what they have. Background ones wait for the next start, as do those in the queue.
        Safe to call twice.
        """
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._runner.close(grace_s)
        if self.collecting is not None:
            await asyncio.to_thread(self.collecting.close)
        if self._owns_instance:
            self._instance.close()

    @property
    def active(self) -> int:
        """How many run here now."""
        return self._runner.active

    @property
    def waiting(self) -> int:
        """How many wait for a free place."""
        return self._runner.waiting

    async def start(
        self, caller: Principal, body: SearchBody, *, background: bool = False, idempotency_key: str | None = None
    ) -> Running:
        """Begin a search, or find the one that the same key and body have begun.

        `background`, or `body.background`, lets it wait for a free place and run again after a restart.

        Raises:
            ApiError: 404, there is no such collection; 422, a field asks for what is not there, or the key stands for
                another request; 429, the server is busy; 503, it is stopping.
            InvalidRequest, InvalidFilter: a field is out of range, or not of the grammar.
        """
        search_id = new_search_id()
        asked = Asked(
            id=search_id,
            tenant=caller.tenant,
            unit=unit_of(caller, body.session, search_id),
            body=body,
            request=request_of(body, self._settings),
            collections=collections_of(caller, body.collections, self._settings),
            background=background or body.background,
        )
        for name in asked.collections:
            self._registry.require(caller.collection(name))
        running = Running(asked, on_cancel=self._runner.cancelled, idempotency_key=idempotency_key)
        if idempotency_key is not None and (found := self._same(caller, running, idempotency_key)) is not None:
            return found
        try:
            self._runner.check_room(asked.tenant, background=asked.background)
            self._store.add(self._row(asked))
        except BaseException:
            self._free_key(running)
            raise
        if self.collecting is not None:
            self.collecting.asked(caller, body, asked.id, asked.created)
        if asked.background:
            self._runner.enqueue(running)
        else:
            self._runner.run(running)
        return running

    def running(self, caller: Principal, search_id: str) -> Running | None:
        """A search of the caller's that waits or runs here; None if there is none."""
        found = self._runner.find(search_id)
        return found if found is not None and found.asked.tenant == caller.tenant else None

    def get(self, caller: Principal, search_id: str) -> SearchResponse:
        """A search of the caller's, as it stands.

        Raises:
            ApiError: 404, the caller has none of that id.
        """
        running = self.running(caller, search_id)
        return running.seen() if running is not None else self._stored(self._row_of(caller, search_id))

    def page(self, caller: Principal, *, limit: int, before: tuple[float, str] | None = None) -> list[Row]:
        """Searches of the caller's, newest first, without what they found; those before (created, id)."""
        return self._store.page(caller.tenant, limit=limit, before=before)

    async def cancel(self, caller: Principal, search_id: str) -> SearchResponse:
        """End a search with what it has found; one that has ended stays as it is.

        Raises:
            ApiError: 404 as `get`; 409, another server runs it.
        """
        running = self.running(caller, search_id)
        if running is not None:
            running.cancel()
            await running.over()
            return running.seen()
        row = self._row_of(caller, search_id)
        if row.status in UNFINISHED:
            raise _elsewhere()
        return self._stored(row)

    async def delete(self, caller: Principal, search_id: str) -> None:
        """Forget a search of the caller's with all that was kept of it; one that runs is cancelled first.

        Raises:
            ApiError: as `cancel`.
        """
        collected = self.collecting is not None and self.collecting.knows(caller.tenant, search_id)
        if not collected or self._store.find(caller.tenant, search_id) is not None:
            await self.cancel(caller, search_id)  # 404 for one that is not even in the collected records
        self._store.remove(caller.tenant, search_id)
        self._runner.forget(search_id)
        self._feedback.forget(caller.tenant, search_id)
        await asyncio.to_thread(remove_trace, search_id)
        if self.collecting is not None:
            await self.collecting.forget(caller.tenant, search_id)

    async def events(self, caller: Principal, search_id: str, after: int = 0) -> AsyncIterator[Told]:
        """The events of a search of the caller's past number `after`: what is kept, then live, until it ends.

        The last one has the whole response, as `get` has it.

        Raises:
            ApiError: 404 as `get`, before the first event.
        """
        if (running := self.running(caller, search_id)) is not None:
            async for told in running.events(after):
                yield told
            return
        while (row := self._row_of(caller, search_id)).status in UNFINISHED:
            if self._runner.closing:
                return
            await asyncio.sleep(POLL_S)
        for told in self._stored_events(row):
            if told.number > after:
                yield told

    async def trace(self, caller: Principal, search_id: str) -> tuple[Trajectory, Answer | None]:
        """What a search of the caller's did, turn by turn, and its answer.

        Raises:
            ApiError: 404 as `get`, or it has left no trace; 409, it has not ended.
        """
        self._check_ended(self.get(caller, search_id))
        path = trace_path(search_id)
        try:
            found = await asyncio.to_thread(lambda: list(read_traces(path)))
            return found[-1], await asyncio.to_thread(read_answer, path)
        except (TraceError, IndexError):
            message = "this search left no trace: one of effort minimal has no turns, and a server may not keep traces"
            raise ApiError(404, "trace_not_found", message, type="not_found_error") from None

    def add_feedback(self, caller: Principal, search_id: str, body: FeedbackBody) -> FeedbackReceipt:
        """Keep what the caller says of a search of its tenant's.

        Raises:
            ApiError: 404 as `get`; 409, it has not ended; 422, it returned no such evidence.
        """
        seen = self.get(caller, search_id)
        self._check_ended(seen)
        known = {result.id for result in seen.results}
        receipt = self._feedback.add(caller.tenant, search_id, body, known=known, key_id=caller.key_id)
        if self.collecting is not None:
            self.collecting.feedback(caller, search_id, body)
        return receipt

    def add_signal(self, caller: Principal, search_id: str, body: SignalBody) -> SignalReceipt:
        """Collect what the caller's user did after a search of its tenant's, if that search is collected.

        Raises:
            ApiError: 404 as `get`; 409, it has not ended; 422, it returned no such evidence; 429, there is enough.
        """
        seen = self.get(caller, search_id)
        self._check_ended(seen)
        if body.evidence_id is not None and body.evidence_id not in {result.id for result in seen.results}:
            message = f"this search returned no evidence {body.evidence_id[:50]!r}; use the ids of its results"
            raise ApiError(422, "invalid_field", message, param="evidence_id")
        collected: bool | None = False
        if self.collecting is not None:
            collected = self.collecting.signal(caller, search_id, body.kind, body.evidence_id)
        if collected is None:
            message = f"this search has {MAX_SIGNALS} signals, which is enough"
            raise ApiError(429, "too_many_signals", message, type="rate_limit_error")
        return SignalReceipt(search_id=search_id, kind=body.kind, collected=collected, created_at=int(time.time()))

    def note_fetched(self, caller: Principal, collection: str, document_id: str) -> None:
        """The caller has read a document: that may open a result of a search of its own."""
        if self.collecting is not None:
            self.collecting.fetched(caller, collection, document_id)

    def _check_ended(self, seen: SearchResponse) -> None:
        if seen.status in UNFINISHED:
            message = "this search has not ended; try again when it has"
            raise ApiError(409, "search_running", message, type="conflict_error")

    def _same(self, caller: Principal, running: Running, key: str) -> Running | None:
        """What the same key and body have begun; None if that is `running`, for which the key stands then.

        Raises:
            ApiError: 422 as `Idempotency.claim`; 409, another server runs it.
        """
        asked = running.asked
        request = fingerprint(ROUTE, [asked.body.model_dump(mode="json"), asked.background])
        held = self.idempotency.claim(caller.tenant, key, request, asked.id)
        if held == asked.id:
            return None
        if (going := self.running(caller, held)) is not None:
            return going
        row = self._store.find(caller.tenant, held)
        if row is not None and row.status in UNFINISHED:
            raise _elsewhere()
        if row is not None and (row.problem is None or row.problem["status"] < 500):
            return self._ended_before(row)
        # It was deleted since, or it broke through no fault of its own, which another try may not.
        self.idempotency.release(caller.tenant, key, held)
        self.idempotency.claim(caller.tenant, key, request, asked.id)
        return None

    def _free_key(self, running: Running) -> None:
        if running.idempotency_key is not None:
            self.idempotency.release(running.asked.tenant, running.idempotency_key, running.id)

    def _ended_before(self, row: Row) -> Running:
        """A search that has ended, for someone who would have started it."""
        ended = Running(
            asked_of(row, self._settings), log=EventLog(self._stored_events(row)), on_cancel=self._runner.cancelled
        )
        error = stored_error(row)
        if error is None:
            ended.finish(self._stored(row))
        else:
            ended.fail(error, self._stored(row))
        return ended

    def _row_of(self, caller: Principal, search_id: str) -> Row:
        row = self._store.find(caller.tenant, search_id)
        if row is None:
            message = f"there is no search {search_id!r}; it may be older than what this server keeps"
            raise ApiError(404, "search_not_found", message, type="not_found_error")
        return row

    def _stored(self, row: Row) -> SearchResponse:
        """A search as it was kept, with its trajectory where that was asked for and lies beside it."""
        response = stored_response(row)
        if response.trajectory is None and row.response and SearchBody.model_validate_json(row.body).include_trace:
            try:
                trajectory = [trace.model_dump(mode="json") for trace in read_traces(trace_path(row.id))][-1]
            except (TraceError, IndexError):
                return response
            return response.model_copy(update={"trajectory": trajectory})
        return response

    def _stored_events(self, row: Row) -> list[Told]:
        response = self._stored(row)
        told = self._store.events(row.tenant, row.id)
        return [replace(e, data={**e.data, "response": response}) if e.type in ENDING_EVENTS else e for e in told]

    def _row(self, asked: Asked) -> Row:
        return Row(
            id=asked.id,
            tenant=asked.tenant,
            owner=self._instance.id,
            background=asked.background,
            status="queued" if asked.background else "running",
            query=asked.request.query,
            collections=asked.collections,
            body=asked.body.model_dump_json(),
            created=asked.created,
        )

    async def _look_around(self) -> None:
        """Take over what dead servers have left, and forget what is too old."""
        self._runner.keep_again()
        try:
            self._orphans.take_over()
            await asyncio.to_thread(self._store.prune)
        except (sqlite3.Error, ValueError) as error:  # one row that cannot be read must not keep the server down
            logger.error("what other servers have left cannot be taken over: %s", error)
        if self.collecting is not None:
            self.collecting.tidy()
            await asyncio.to_thread(self.collecting.keep)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look_around()


def _elsewhere() -> ApiError:
    message = "another server on the same data runs this search; ask that one, or wait until it has ended"
    return ApiError(409, "search_elsewhere", message, type="conflict_error")
