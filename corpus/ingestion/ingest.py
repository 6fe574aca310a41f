"""Origins into a collection: read, chunk, embed what is new, write in batches.

Every batch is durable when it is written, so a run that is killed goes on where it was: sources that are complete are
recognised by the hash of their bytes, documents by the hash of their content, passages by the hash of what was
embedded. Reading, embedding and writing each have a thread, with a few batches between them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Status
from thresher.corpus.errors import CorpusError, EmbedderError
from thresher.corpus.ingestion.ahead import run_ahead
from thresher.corpus.ingestion.identity import Entry, Identities
from thresher.corpus.ingestion.locks import taken_by_another, writer_locks
from thresher.corpus.ingestion.origins import Origin, PathOrigin, parse_origin, remember_origins
from thresher.corpus.ingestion.preparing import Prepared, prepare_documents
from thresher.corpus.ingestion.reading import INTERRUPTED, Ended, Event, Job, Passed, Read, Reader, Started, Unread
from thresher.corpus.ingestion.report import IngestReport, OnProgress, SourceResult, Tally
from thresher.corpus.ingestion.walk import LARGEST_FILE, RootError
from thresher.corpus.ingestion.web.fetch import Fetcher
from thresher.corpus.ingestion.workers import LocalWorkers, Workers
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.record.batch import Finish, Put, Step

BATCH_CHUNKS = 128
"""Chunks of the first batches; a batch is what is embedded, written and acknowledged together."""

LARGEST_BATCH_CHUNKS = 512
"""Batches grow to this while they are embedded in less than `_QUICK_S`: a commit then costs more than it saves."""

_QUICK_S = 0.3
_BATCH_EVENTS = 512
_BATCHES_AHEAD = 2
_READ_AHEAD = 2_000_000
"""Characters of documents that are read but not embedded."""
_IDLE_S = 1.0
_LAST_BATCH_S = 20.0
# An embedder that fails this many batches in a row is down; the files are not to blame.
_GIVE_UP_AFTER = 3


def ingest(
    collection: Collection,
    origins: Sequence[str | Path],
    *,
    on_progress: OnProgress | None = None,
    largest_file: int = LARGEST_FILE,
    parser: ParserProcess | None = None,
    ray: str | None = None,
) -> IngestReport:
    """Read origins into a collection. What has not changed is left alone; nothing is removed for being gone.

    A second ingestion or sync of the same collection in this process waits for the first.

    Args:
        origins: folders, files, glob patterns, URLs, `urls:FILE`; see `parse_origin`.
        on_progress: called after every batch and every file, from the calling thread.
        largest_file: bytes; longer files are skipped (JSONL and mbox are streams and have no limit), and longer pages,
            for which there is a limit of 64 MB besides.
        parser: the child process for what is parsed in one, to set its limits.
        ray: the address of a Ray cluster that parses and embeds (`auto`, `ray://HOST:PORT`, `HOST:PORT`, or `local`
            to start one on this machine for the run); this process still does all the writing.

    Raises:
        RootError: an origin does not exist, cannot be read or matches nothing; nothing was changed.
        EmbedderError: the embedder is down; what was written stays, and the next run goes on from there.
        ClusterError: the Ray cluster cannot be used; nothing was changed.
    """
    parsed = [parse_origin(origin) for origin in origins]
    with writer_locks(collection).run:
        run = Ingestion(collection, parsed, on_progress=on_progress, largest_file=largest_file, parser=parser, ray=ray)
        for origin, entries in run.found:
            if not entries and not isinstance(origin, PathOrigin):
                raise RootError(f"{origin.nothing()}. Nothing was changed; check it (and quote it for the shell)")
        remember_origins(collection, parsed)
        return run.execute()


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing was read for a while: what there is should be written."""


@dataclass(slots=True)
class _Batch:
    """Events with the documents of theirs that could be prepared, or the reason why none could."""

    events: list[Event]
    documents: dict[int, PreparedDocument] = field(default_factory=dict)  # by place in `events`
    embedded: int = 0
    reused: int = 0
    error: EmbedderError | None = None


class Ingestion:
    """One run over some origins. `execute` may be called once, while the collection's `WriterLocks.run` is held.

    Attributes:
        found: each origin with what is there now.
        gone: ids of the pages that do not exist any more, as far as the run has come.
    """

    def __init__(
        self,
        collection: Collection,
        origins: Sequence[Origin],
        *,
        on_progress: OnProgress | None = None,
        largest_file: int = LARGEST_FILE,
        parser: ParserProcess | None = None,
        ray: str | None = None,
    ) -> None:
        self._collection = collection
        self._parser = parser
        self._ray = ray
        self._largest = largest_file
        own = collection.path.resolve()
        self.found: list[tuple[Origin, Sequence[Entry]]] = [
            (origin, origin.entries(without=own, largest=largest_file)) for origin in origins
        ]
        self.gone: list[str] = []
        self._entries = [(entry, origin.root) for origin, entries in self.found for entry in entries]
        self.identities = Identities(collection.sources())
        self._tally = Tally((entry for entry, _ in self._entries), on_progress)
        self._failed_batches = 0
        self._batch_chunks = BATCH_CHUNKS

    def execute(self) -> IngestReport:
        """Read, embed and write everything."""
        with (
            closing(self._workers()) as workers,
            Fetcher(largest=self._largest) as fetcher,
            ThreadPoolExecutor(workers.lanes, "embed") if workers.lanes > 1 else nullcontext() as pool,
            self._collection.bulk(),
        ):
            reader = Reader(self._collection, self.identities, workers.parsing, fetcher)
            stop = threading.Event()
            events = run_ahead(
                reader.events(self._entries),
                _READ_AHEAD,
                "thresher-read",
                weigh=_size,
                idle=(_IDLE_S, Idle()),
                stop=stop,
            )
            prepared = self._prepared(self._batches(events), workers, pool)
            # A native embedder must not run on while the process ends, so a stopped run waits for its last batch.
            ready = run_ahead(prepared, _BATCHES_AHEAD, "thresher-embed", stop=stop, join_s=_LAST_BATCH_S)
            with closing(ready):
                for batch in ready:
                    self._write(batch)
            if stop.is_set():
                raise CorpusError("the ingestion was cut short; run the same command again to go on from there")
        return self._tally.report()

    def _workers(self) -> Workers:
        if self._ray is None:
            return LocalWorkers(self._collection.embedder, self._collection.chunker, self._parser)
        from thresher.corpus.ingestion.distributed.workers import RayWorkers

        return RayWorkers(self._ray, self._collection.embedder, self._collection.chunker, self._parser)

    def _batches(self, events: Iterable[Event | Idle]) -> Iterator[_Batch]:
        """Batches of the size that is right for the embedder; smaller ones while the reading is what takes time."""
        batch: list[Event] = []
        chunks = 0
        for event in events:
            if not isinstance(event, Idle):
                batch.append(event)
                chunks += len(event.chunked.spans) if isinstance(event, Read) else 0
            full = chunks >= self._batch_chunks or len(batch) >= _BATCH_EVENTS
            if full or (batch and isinstance(event, Idle)):
                yield _Batch(batch)
                batch, chunks = [], 0
        if batch:
            yield _Batch(batch)

    def _prepared(
        self, batches: Iterable[_Batch], workers: Workers, pool: ThreadPoolExecutor | None
    ) -> Iterator[_Batch]:
        """The batches with vectors, in order; as many at once as the workers have lanes."""
        if pool is None:
            for batch in batches:
                yield self._prepare(batch, workers)
            return
        running: deque[Future[_Batch]] = deque()
        for batch in batches:
            running.append(pool.submit(self._prepare, batch, workers))
            while running and (running[0].done() or len(running) > workers.lanes):
                yield running.popleft().result()
        while running:
            yield running.popleft().result()

    def _prepare(self, batch: _Batch, workers: Workers) -> _Batch:
        """Vectors for a batch. Runs in a thread of its own."""
        reads = [(place, event.chunked) for place, event in enumerate(batch.events) if isinstance(event, Read)]
        started = time.monotonic()
        try:
            prepared = prepare_documents(
                [chunked for _, chunked in reads],
                workers.embed,
                self._collection.manifest.embedder,
                self._collection.known_vectors,
            )
        except EmbedderError as error:
            batch.error = error
            return batch
        self._grow(prepared, time.monotonic() - started)
        batch.documents = {place: document for (place, _), document in zip(reads, prepared.documents, strict=True)}
        batch.embedded, batch.reused = prepared.embedded, prepared.reused
        return batch

    def _grow(self, prepared: Prepared, seconds: float) -> None:
        full = self._batch_chunks
        if prepared.embedded >= full and seconds < _QUICK_S:
            self._batch_chunks = min(LARGEST_BATCH_CHUNKS, full * 2)

    def _write(self, batch: _Batch) -> None:
        if batch.error is not None:
            self._failed_batches += 1
            for event in batch.events:
                if isinstance(event, Read):
                    event.job.failure = str(batch.error)
        elif batch.documents:
            self._failed_batches = 0
        self._tally.embedded(batch.embedded, batch.reused)
        with writer_locks(self._collection).ids:
            self._refuse_taken(batch)
            steps = [step for step in self._steps(batch) if step is not None]
            if steps:
                self._tally.removed(self._collection.write_batch(steps))
        for place, event in enumerate(batch.events):
            self._count(event, batch.documents.get(place))
        self._tally.tell()
        if batch.error is not None and self._failed_batches >= _GIVE_UP_AFTER:
            raise batch.error

    def _refuse_taken(self, batch: _Batch) -> None:
        """Leave out what somebody else has put into the collection since it was read."""
        new: dict[str, int] = {}
        for place, document in batch.documents.items():
            if document.document.id not in _job_of(batch.events[place]).own:
                new[document.document.id] = place
        wanted = {name: _job_of(batch.events[place]).id for name, place in new.items()}
        for name, owner in taken_by_another(self._collection, wanted).items():
            job = _job_of(batch.events[new[name]])
            job.failure = job.failure or (
                f"the id {name!r} went to the source {owner!r} while this was read; run the same command again"
            )
            del batch.documents[new[name]]

    def _steps(self, batch: _Batch) -> Iterator[Step | None]:
        ended = {id(event.job) for event in batch.events if isinstance(event, Ended)}
        for place, event in enumerate(batch.events):
            if isinstance(event, Started) and id(event.job) not in ended:
                mark = event.job.source(Status.FAILED, INTERRUPTED, digest="")
                yield Finish(mark, frozenset(event.job.own))
            elif isinstance(event, Read) and place in batch.documents:
                yield Put(batch.documents[place], event.job.id)
            elif isinstance(event, Ended):
                yield _finish(event)

    def _count(self, event: Event, document: PreparedDocument | None) -> None:
        if document is not None:
            self._tally.written(len(document.spans))
        if isinstance(event, Read):
            self._tally.advance(event.job.entry, event.job.id, len(event.chunked.document.text))
        elif isinstance(event, Ended):
            job = event.job
            if job.gone:
                self.gone.append(job.id)
            end = _outcome(event)
            result = SourceResult(job.id, end.status, end.reason, job.documents, job.chunks)
            self._tally.end(result, job.entry, read=end.keep is not None and end.row is None)
        elif isinstance(event, Unread):
            self._tally.end(SourceResult(event.id, Status.FAILED, event.reason), event.entry, read=False)
        elif isinstance(event, Passed):
            self._tally.leave_out(event.entry)


def _size(event: Event | Idle) -> int:
    return 200 + (len(event.chunked.document.text) if isinstance(event, Read) else 0)


def _job_of(event: Event) -> Job:
    assert isinstance(event, Read)
    return event.job


def _outcome(event: Ended) -> Ended:
    """How a source ended, in the light of what happened to its documents after they were read."""
    job = event.job
    if job.failure is None or event.status is Status.FAILED:
        return event
    return Ended(job, Status.FAILED, job.failure, frozenset(job.seen) | job.own.keys())


def _finish(event: Ended) -> Finish | None:
    end = _outcome(event)
    if end.keep is None:
        return None
    return Finish(end.row or end.job.source(end.status, end.reason), end.keep)
