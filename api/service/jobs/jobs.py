"""Jobs: operations that take long, run in the background, remembered, and run again after a restart.

On each collection they run one after the other, in the order in which they were asked for; those of different
collections beside each other, a few at a time. A job belongs to one server. When that has died, another (or the next)
begins it again: every operation passes over what was done before.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError
from thresher.api.service.idempotency import Idempotency, check_key, fingerprint
from thresher.api.service.instance import Instance
from thresher.api.service.jobs.kinds import INGEST
from thresher.api.service.jobs.runner import JobRunner
from thresher.api.service.jobs.spool import clear_abandoned, remove_spool, spool_folder
from thresher.api.service.jobs.store import CANCELLED, ENDED, FAILED, SUCCEEDED, JobRow, JobStore
from thresher.api.service.jobs.views import JobModel, job_document, job_event
from thresher.api.service.news import Newsboard
from thresher.api.service.stopping import stopping_error
from thresher.corpus.lifecycle.removal import clear_removed

if TYPE_CHECKING:
    from thresher.api.service.database import Database
    from thresher.api.service.principal import Principal
    from thresher.api.service.registry import Registry
    from thresher.api.service.searching.log import Told

logger = logging.getLogger("thresher.api")

MAX_UNFINISHED = 100
"""Jobs of one tenant that may be queued or running."""

KEPT_S = 7 * 86_400.0
"""How long a job is remembered after its end, and the files of one that did not succeed are kept."""

KEPT_SPOOLS = 20
"""Jobs of one tenant that did not succeed whose files are kept for another try, the newest."""

LOOK_S = 1.0
"""How often to look after a job that another server runs."""

STOP_S = 10.0
"""How long a server that stops waits for jobs to come to their next step."""


class Jobs:
    """The jobs of one server. Methods may be called from any thread; `events` belongs to an event loop."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        *,
        limit: int = 2,
        ocr: bool = False,
        instance: Instance | None = None,
    ) -> None:
        """`limit`: jobs that run at the same time. `ocr`: they read pictures and scans, too.

        `instance`: the server that they belong to; whoever gives one closes it. None: they are a server of their own.
        """
        self._registry = registry
        self._store = JobStore(database)
        self._idempotency = Idempotency(database)
        self._instance = instance or Instance()
        self._owns_instance = instance is None
        self._news = Newsboard()
        self._runner = JobRunner(self._store, registry, self._instance, self._news, limit=limit, ocr=ocr)

    def open(self) -> None:
        """Begin to run jobs; first of all those that dead servers have left. Clears away what nobody needs."""
        self._instance.open()
        clear_removed()
        self._forget()
        clear_abandoned(self._needs_files)
        self._runner.open()

    def close(self, patience_s: float = STOP_S) -> None:
        """Begin no more; those that run stop at their next step and wait for the next start. Safe to call twice."""
        left = self._runner.close(min(patience_s, STOP_S))
        self._news.tell_all()
        if left:
            logger.warning("jobs that did not stop in time run again at the next start: %s", ", ".join(left))
        if self._owns_instance:
            self._instance.close()

    def start(
        self,
        caller: Principal,
        kind: str,
        collection: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        job_id: str | None = None,
        idempotency_key: str | None = None,
        content: str = "",
    ) -> JobModel:
        """Queue a job, or find the one that the same key and request have begun.

        Args:
            kind: one of `KINDS`.
            collection: plain name; it must exist.
            job_id: made with `new_job_id`, where files were spooled under it.
            content: what beside the arguments tells this request from another: a digest of the files.

        Raises:
            ApiError: no such collection, too many jobs, the server is stopping, or the key stands for another request.
        """
        self._check_open()
        self._registry.require(caller.collection(collection))
        given = dict(arguments or {})
        job_id = job_id or new_job_id()
        if idempotency_key is not None:
            check_key(idempotency_key)
            request = fingerprint(f"job {kind} {collection}", [given, content])
            held = self._idempotency.claim(caller.tenant, idempotency_key, request, job_id)
            if held != job_id:
                if (row := self._store.get(caller.tenant, held)) is not None:
                    return job_document(row)
                self._idempotency.release(caller.tenant, idempotency_key, held)  # forgotten since
                self._idempotency.claim(caller.tenant, idempotency_key, request, job_id)
        try:
            self.check_room(caller)
            row = self._store.add(job_id, caller.tenant, kind, collection, given, self._instance.id)
        except BaseException:
            if idempotency_key is not None:
                self._idempotency.release(caller.tenant, idempotency_key, job_id)
            raise
        self._forget()
        self._runner.wake()
        return job_document(row)

    def get(self, caller: Principal, job_id: str) -> JobModel:
        """A job as it stands.

        Raises:
            ApiError: 404, the caller has none of that id.
        """
        return job_document(self._row(caller, job_id))

    def page(
        self, caller: Principal, *, after: str | None, limit: int, wanted: Mapping[str, str]
    ) -> tuple[list[JobModel], bool]:
        """The caller's jobs, newest first, from the one that follows `after`; and whether there are more.

        Raises:
            ApiError: 422, `after` is no job of theirs.
        """
        before = None
        if after is not None:
            row = self._store.get(caller.tenant, after)
            if row is None:
                message = f"after must be the id of a job, as `next` of the page before told it; there is no {after!r}"
                raise ApiError(422, "invalid_cursor", message, param="after")
            before = row.seq
        rows, more = self._store.page(caller.tenant, before=before, limit=limit, wanted=wanted)
        return [job_document(row) for row in rows], more

    def cancel(self, caller: Principal, job_id: str) -> JobModel:
        """Have a job stop: a queued one at once, a running one at its next step. One that has ended stays as it is.

        Raises:
            ApiError: 404, the caller has none of that id.
        """
        row = self._store.cancel(caller.tenant, job_id)
        if row is None:
            raise _not_found(job_id)
        if row.cancelling:
            self._runner.cancel(job_id)
        self._news.tell(job_id)
        return job_document(row)

    def retry(self, caller: Principal, job_id: str) -> JobModel:
        """Queue a job that failed or was cancelled again.

        Raises:
            ApiError: 404, the caller has none of that id; 409, it has not ended so, or its files are gone; 429.
        """
        self._check_open()
        row = self._row(caller, job_id)
        if row.status not in (FAILED, CANCELLED):
            message = f"only a job that failed or was cancelled can be tried again; this one is {row.status}"
            raise ApiError(409, "job_not_retryable", message, type="conflict_error")
        if row.kind == INGEST and not spool_folder(row.tenant, row.id).is_dir():
            message = "the files of this job are not kept any more: send them again"
            raise ApiError(409, "files_gone", message, type="conflict_error")
        self._registry.require(caller.collection(row.collection))
        self.check_room(caller)
        again = self._store.retry(caller.tenant, job_id, self._instance.id)
        if again is None:
            raise _not_found(job_id)
        self._runner.wake()
        self._news.tell(job_id)
        return job_document(again)

    def unfinished(self, caller: Principal, collection: str) -> int:
        """How many jobs on a collection are queued or running, whichever server has them."""
        return self._store.unfinished(caller.tenant, collection)

    def counts(self) -> dict[str, int]:
        """How many jobs of this server are `queued` and `running`."""
        return self._store.counts(self._instance.id)

    async def events(self, caller: Principal, job_id: str, after: int = 0) -> AsyncIterator[Told]:
        """What happens to a job, from past event number `after`; ends with the job, or when the server stops.

        Of the past only the newest event is kept, and the first. Each has the whole job under `job`. Of one that has
        ended there is always the last event, whatever `after` is.

        Raises:
            ApiError: 404, the caller has none of that id.
        """
        row = await asyncio.to_thread(self._row, caller, job_id)
        if after < 1:
            yield job_event(row, created=True)
            after = 1
        if row.status in ENDED:
            if row.event > 1:
                yield job_event(row)
            return
        with self._news.listening(job_id) as news:
            while not self._runner.stopping:
                news.clear()
                try:
                    row = await asyncio.to_thread(self._row, caller, job_id)
                except ApiError:  # it was forgotten meanwhile
                    return
                if row.event > after or row.status in ENDED:
                    after = row.event
                    yield job_event(row)
                if row.status in ENDED:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOK_S)

    def _forget(self) -> None:
        """Let go of old jobs, and of files that are kept in vain."""
        for tenant, job_id in self._store.forget(time.time() - KEPT_S):
            remove_spool(tenant, job_id)

    def _needs_files(self, tenant: str, job_id: str) -> bool:
        row = self._store.get(tenant, job_id)
        return row is not None and row.status != SUCCEEDED

    def check_room(self, caller: Principal) -> None:
        """Refuse what would begin one job too many.

        Raises:
            ApiError: 429; or the server is stopping.
        """
        self._check_open()
        tenant = caller.tenant
        if self._store.unfinished(tenant) >= MAX_UNFINISHED:
            message = f"{MAX_UNFINISHED} jobs are waiting or running already: try again when some have ended"
            raise ApiError(429, "too_many_jobs", message, type="rate_limit_error", retry_after_s=30)
        for job_id in self._store.may_run_again(tenant, INGEST)[KEPT_SPOOLS:]:
            remove_spool(tenant, job_id)

    def _check_open(self) -> None:
        if self._runner.stopping:
            raise stopping_error(STOP_S)

    def _row(self, caller: Principal, job_id: str) -> JobRow:
        row = self._store.get(caller.tenant, job_id)
        if row is None:
            raise _not_found(job_id)
        return row


def new_job_id() -> str:
    """An id for a job to be."""
    return f"job_{uuid.uuid4().hex[:24]}"


def _not_found(job_id: str) -> ApiError:
    message = f"there is no job {job_id!r}; GET /v1/jobs lists those that there are"
    return ApiError(404, "job_not_found", message, type="not_found_error", param="job_id")
