"""The operations that a server runs for commands, a thread each."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError, Problem, explain
from thresher.api.operations.base import Operation, Reporter
from thresher.api.operations.carrying_out import carry_out

if TYPE_CHECKING:
    from thresher.api.service.registry import Registry

logger = logging.getLogger("thresher.api")

Message = dict[str, Any]

ALIVE_S = 5.0
"""How often a stream says that its server lives, while an operation has nothing to tell."""

INTERRUPTED = Problem("interrupted", "interrupted", "the operation was stopped; finished work is kept", 499)
STOPPED = Problem(
    "api_error",
    "server_stopped",
    "the server was stopped; finished work is kept: run the same command again to go on where it stopped",
    503,
)
BROKEN = "something broke inside the server ({error}); its log has the details"


class Job:
    """One operation on its way. `next` is for one reader, in the event loop that made the job."""

    def __init__(self, operation: Operation[Any], request: Any, collection: str, registry: Registry) -> None:
        self.name = f"{operation.name} {collection}"
        self.stopped = False
        self._operation, self._request, self._collection = operation, request, collection
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._progress: Message | None = None
        self._end: Message | None = None
        self._reporter = Reporter(self._tell)
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def cancel(self, *, stopped: bool = False) -> None:
        """Ask the operation to stop at its next step; `stopped`: because the server does."""
        self.stopped = self.stopped or stopped
        self._reporter.cancel()

    async def next(self) -> Message:
        """The newest progress, a sign of life, or the end. Progress that nobody came to fetch in time is left out."""
        try:
            await asyncio.wait_for(self._news.wait(), ALIVE_S)
        except TimeoutError:
            return {"alive": True}
        self._news.clear()
        progress, self._progress = self._progress, None
        if progress is not None:
            if self._end is not None:
                self._news.set()
            return {"progress": progress}
        assert self._end is not None
        return self._end

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        def put() -> None:
            self._progress = {"kind": kind, "data": data}
            self._news.set()

        self._in_loop(put)

    def _run(self) -> None:
        end = self._outcome()

        def put() -> None:
            self._end = end
            self._news.set()

        self._in_loop(put)

    def _in_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: the server is gone, and so is whoever would read this
            return

    def _outcome(self) -> Message:
        started = time.monotonic()
        outcome = carry_out(self._operation, self._request, self._collection, self._registry, self._reporter)
        if outcome.stopped:
            logger.info("%s: stopped after %.1f s", self.name, time.monotonic() - started)
            return failure(STOPPED if self.stopped else INTERRUPTED)
        if (error := outcome.error) is not None:
            problem = explain(error)
            if problem is None:
                logger.error("%s failed", self.name, exc_info=error)
                text = BROKEN.format(error=f"{type(error).__name__}: {error}")
                problem = Problem("api_error", "internal_error", text, 500)
            return failure(problem)
        return {"result": outcome.result}


class Jobs:
    """The jobs of one server, by id."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._running: dict[str, Job] = {}
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether any runs."""
        return bool(self._running)

    def start(self, job_id: str, operation: Operation[Any], request: Any, collection: str) -> Job:
        """Begin an operation.

        Raises:
            ApiError: the id is taken, or the server is stopping.
        """
        if self._stopping:
            raise ApiError(STOPPED.status, STOPPED.code, STOPPED.message, type=STOPPED.type)
        if job_id in self._running:
            raise ApiError(409, "duplicate_id", f"an operation with the id {job_id!r} is running", param="id")
        job = Job(operation, request, collection, self._registry)
        self._running[job_id] = job
        job.thread.start()
        return job

    def end(self, job_id: str) -> None:
        """Whoever asked for a job is gone or has its result; if it still runs, it shall stop."""
        job = self._running[job_id]
        job.cancel()
        if not job.thread.is_alive():
            del self._running[job_id]
            return
        threading.Thread(target=self._forget, args=(job_id, job), daemon=True).start()

    def cancel(self, job_id: str) -> bool:
        """Ask a job to stop; whether there is one."""
        job = self._running.get(job_id)
        if job is not None:
            job.cancel()
        return job is not None

    def stop(self, patience_s: float) -> list[str]:
        """Stop them all; waits, and returns the names of those that have not ended after `patience_s`."""
        self._stopping = True
        deadline = time.monotonic() + patience_s
        jobs = list(self._running.values())
        for job in jobs:
            job.cancel(stopped=True)
        for job in jobs:
            job.thread.join(max(0.0, deadline - time.monotonic()))
        return [job.name for job in jobs if job.thread.is_alive()]

    def _forget(self, job_id: str, job: Job) -> None:
        job.thread.join()
        self._running.pop(job_id, None)


def failure(problem: Problem) -> Message:
    """The last line of a stream that brings no result."""
    return problem.document(status=problem.status)
