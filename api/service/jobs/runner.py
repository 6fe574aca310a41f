"""Runs queued jobs: a thread each, a few at a time, one on a collection."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError, explain_to_client
from thresher.api.operations.base import Reporter
from thresher.api.operations.carrying_out import Outcome, carry_out
from thresher.api.service.jobs.kinds import KINDS
from thresher.api.service.jobs.spool import remove_spool
from thresher.api.service.jobs.store import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, JobRow, JobStore, Place
from thresher.api.service.jobs.views import error_document, progress_document, result_document
from thresher.corpus.errors import CollectionLocked
from thresher.corpus.paths import qualified

if TYPE_CHECKING:
    from thresher.api.service.instance import Instance
    from thresher.api.service.news import Newsboard
    from thresher.api.service.registry import Registry

logger = logging.getLogger("thresher.api")

MAX_DEATHS = 5
"""Servers that may die while they run one job, before it is given up: it may be what kills them."""

TELL_S = 0.25
"""Progress is told and kept no more often than this."""

LOOK_S = 1.0
"""How often to look again for what can be begun."""

LONGEST_WAIT_S = 15.0
"""A collection that another process uses is tried again after 1 s, 2 s, 4 s, …, and at last this often."""

ADOPT_S = 30.0
"""How often to look for jobs of servers that have died."""


@dataclass(slots=True)
class _Running:
    """A job that a thread runs.

    Attributes:
        progress: the last that was told and is not kept yet.
        told: when one was kept, by the monotonic clock.
        left: the server stops without waiting any longer for it, so it is queued again whatever comes of it here.
    """

    row: JobRow
    reporter: Reporter
    thread: threading.Thread | None = None
    progress: Mapping[str, Any] | None = None
    told: float = 0.0
    left: bool = False


@dataclass(frozen=True, slots=True)
class _Wait:
    """Until when a collection is left alone, and for how long it was this time."""

    until: float
    seconds: float


class JobRunner:
    """The threads that run the jobs of one server."""

    def __init__(
        self, store: JobStore, registry: Registry, instance: Instance, news: Newsboard, *, limit: int, ocr: bool
    ) -> None:
        self._store = store
        self._registry = registry
        self._instance = instance
        self._news = news
        self._limit = limit
        self._ocr = ocr
        self._running: dict[str, _Running] = {}
        self._waits: dict[Place, _Wait] = {}
        self._guard = threading.RLock()
        self._woken = threading.Event()
        self._dispatcher: threading.Thread | None = None
        self.stopping = False

    def open(self) -> None:
        """Begin to run jobs; first of all those that dead servers have left."""
        self._adopt()
        self._dispatcher = threading.Thread(target=self._dispatch, name="jobs", daemon=True)
        self._dispatcher.start()

    def wake(self) -> None:
        """There may be something to begin."""
        self._woken.set()

    def cancel(self, job_id: str) -> None:
        """Have a job stop at its next step, if it runs here."""
        with self._guard:
            running = self._running.get(job_id)
        if running is not None:
            running.reporter.cancel()

    def close(self, patience_s: float) -> list[str]:
        """Begin no more; those that run stop at their next step and are queued again. Ids of those that did not."""
        with self._guard:
            self.stopping = True
            running = list(self._running.values())
        self._woken.set()
        deadline = time.monotonic() + patience_s
        for job in running:
            job.reporter.cancel()
        threads = [self._dispatcher, *(job.thread for job in running)]
        for thread in threads:
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._guard:
            left = [job for job in self._running.values() if not job.left]
            for job in left:
                job.left = True
                self._store.requeue(job.row.id)
        return [job.row.id for job in left]

    def _dispatch(self) -> None:
        """Begin what can be begun, until the server stops. Runs in a thread of its own."""
        adopted = time.monotonic()
        while not self.stopping:
            try:
                if time.monotonic() - adopted > ADOPT_S:
                    adopted = time.monotonic()
                    self._adopt()
                while self._begin_one():
                    pass
            except Exception:
                logger.exception("jobs could not be begun; trying again")
            self._woken.wait(LOOK_S)
            self._woken.clear()

    def _begin_one(self) -> bool:
        with self._guard:
            if self.stopping or len(self._running) >= self._limit:
                return False
            row = self._store.claim(self._instance.id, [job.row.place for job in self._running.values()], self._is_busy)
            if row is None:
                return False
            job = _Running(row, Reporter(lambda kind, data: self._tell(row.id, kind, data)))
            job.thread = threading.Thread(target=self._run, args=(job,), name=f"job-{row.kind}", daemon=True)
            self._running[row.id] = job
            job.thread.start()
        self._news.tell(row.id)
        return True

    def _run(self, job: _Running) -> None:
        row = job.row
        try:
            kind = KINDS[row.kind]
            request = kind.request(row, self._ocr)
            outcome = carry_out(
                kind.operation, request, qualified(row.tenant, row.collection), self._registry, job.reporter
            )
        except Exception as error:  # what is kept of the job makes no request
            outcome = Outcome(error=error)
        try:
            self._keep(job, outcome)
        finally:
            with self._guard:
                self._running.pop(row.id, None)
            self._woken.set()
            self._news.tell(row.id)

    def _keep(self, job: _Running, outcome: Outcome) -> None:
        """Keep how a job ended, as soon as the database can be written: until then it counts as one that runs."""
        told = False
        while True:
            try:
                return self._conclude(job, outcome)
            except (sqlite3.Error, OSError) as error:
                if self.stopping:  # the database may be closed; the next server finds the job unfinished
                    return
                if not told:
                    logger.error("how job %s ended cannot be kept yet: %s", job.row.id, error)
                told = True
            time.sleep(LOOK_S)

    def _conclude(self, job: _Running, outcome: Outcome) -> None:
        row = job.row
        with self._guard:
            if job.left:
                return
        if outcome.result is not None:
            result = result_document(outcome.result, row)
            self._store.end(row.id, SUCCEEDED, progress=job.progress, result=result)
            remove_spool(row.tenant, row.id)
        elif outcome.stopped or self.stopping:
            # Told to stop by its tenant it is cancelled, by the server it waits for the next one: `requeue` knows.
            self._store.requeue(row.id)
        elif _in_use(outcome.error):
            self._wait(row.place)
            self._store.requeue(row.id)
        else:
            assert outcome.error is not None
            problem, log = explain_to_client(outcome.error)
            if log:
                logger.error("job %s (%s) failed: %s", row.id, row.kind, outcome.error, exc_info=outcome.error)
            self._store.end(row.id, FAILED, progress=job.progress, error=error_document(problem, row))

    def _is_busy(self, place: Place) -> bool:
        """Whether a collection cannot be worked on now, for reasons beside our own jobs."""
        wait = self._waits.get(place)
        return (wait is not None and wait.until > time.monotonic()) or qualified(*place) in self._registry.tasks()

    def _wait(self, place: Place) -> None:
        """Leave a collection alone for a while: somebody else uses it."""
        with self._guard:
            before = self._waits.get(place)
            recent = before is not None and time.monotonic() - before.until < 2 * LONGEST_WAIT_S
            seconds = min(LONGEST_WAIT_S, 2 * before.seconds) if before is not None and recent else LOOK_S
            self._waits[place] = _Wait(time.monotonic() + seconds, seconds)

    def _tell(self, job_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """A step of a job, in its thread."""
        with self._guard:
            job = self._running[job_id]
        now = time.monotonic()
        began = job.row.started or time.time()
        job.progress = progress_document(kind, data, max(0.0, time.time() - began))
        if now - job.told < TELL_S:
            return
        job.told = now
        try:
            if self._store.tell(job_id, job.progress):
                job.reporter.cancel()
        except sqlite3.Error:  # how far it is, is not worth the job
            return
        job.progress = None  # it is kept
        self._news.tell(job_id)

    def _adopt(self) -> None:
        """Take over the jobs of servers that have died."""
        for row in self._store.orphans(self._instance.id, self._instance.alive):
            if not self._registry.serves(qualified(row.tenant, row.collection)):
                continue
            now = time.time()
            if row.cancelling:
                values: dict[str, Any] = {"status": CANCELLED, "ended": now, "cancelling": 0}
            elif row.status == RUNNING and row.deaths + 1 >= MAX_DEATHS:
                problem = {
                    "type": "api_error",
                    "code": "given_up",
                    "message": f"the server died {MAX_DEATHS} times while it ran this job; what was done is kept. Its "
                    "log may say why; retry the job to try once more",
                    "param": None,
                }
                values = {"status": FAILED, "ended": now, "deaths": row.deaths + 1, "error": json.dumps(problem)}
            else:
                values = {"status": QUEUED, "deaths": row.deaths + (row.status == RUNNING)}
            if self._store.take_over(row, self._instance.id, **values):
                logger.info("job %s (%s) of a server that died is %s", row.id, row.kind, values["status"])


def _in_use(error: BaseException | None) -> bool:
    """Whether somebody else uses the collection, so that the job only has to wait."""
    return isinstance(error, CollectionLocked) or (isinstance(error, ApiError) and error.code == "collection_busy")
