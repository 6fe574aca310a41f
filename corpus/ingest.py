"""Files into a collection: read, chunk, embed what is new, write in batches.

Every batch is durable when it is written, so a run that is killed goes on where it was: sources that are complete are
recognised by the hash of their file, documents by the hash of their content, passages by the hash of what was
embedded. One batch is embedded while the next one is read and the one before is written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Status, Vectors
from thresher.corpus.embedders.base import embedding_hash, embedding_input
from thresher.corpus.errors import EmbedderError
from thresher.corpus.identity import Identities, IdTaken
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.progress import Progress
from thresher.corpus.reading import INTERRUPTED, Ended, Event, Job, Read, Reader, Started, Unread
from thresher.corpus.walk import LARGEST_FILE, Found, Unreadable, resolve_root, walk

BATCH_CHUNKS = 128
_BATCH_EVENTS = 512
# An embedder that fails this many batches in a row is down; the files are not to blame.
_GIVE_UP_AFTER = 3

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What became of one file. `reason` is set unless it is indexed or unchanged."""

    id: str
    status: Status
    reason: str | None = None
    documents: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did.

    Attributes:
        sources: one result a file, in the order of reading.
        removed: documents that were deleted, because their file or record is gone or has no text any more.
        embedded: passages that the embedder computed.
        reused: passages of new or changed documents whose vector was known already.
    """

    sources: tuple[SourceResult, ...] = ()
    removed: int = 0
    embedded: int = 0
    reused: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many sources ended in each status."""
        return Counter(result.status for result in self.sources)


def ingest(
    collection: Collection,
    paths: Sequence[Path],
    *,
    on_progress: OnProgress | None = None,
    largest_file: int = LARGEST_FILE,
    parser: ParserProcess | None = None,
) -> IngestReport:
    """Read files and folders into a collection. What has not changed is left alone; nothing is removed for being gone.

    Args:
        on_progress: called after every batch and every file, from the calling thread.
        largest_file: bytes; longer files are skipped (JSONL is a stream and has no limit).
        parser: the child process for HTML and PDF, to set its limits.

    Raises:
        RootError: a path does not exist or cannot be read; nothing was changed.
        EmbedderError: the embedder is down; what was written stays, and the next run goes on from there.
    """
    roots = [resolve_root(path) for path in paths]
    run = Ingestion(collection, roots, on_progress=on_progress, largest_file=largest_file, parser=parser)
    return run.execute()


@dataclass(slots=True)
class _Prepared:
    """A batch with its vectors, or the reason why there are none."""

    events: list[Event]
    documents: dict[int, PreparedDocument] = field(default_factory=dict)  # by place in `events`
    embedded: int = 0
    reused: int = 0
    error: EmbedderError | None = None


class Ingestion:
    """One run over some roots. `execute` may be called once."""

    def __init__(
        self,
        collection: Collection,
        roots: Sequence[Path],
        *,
        on_progress: OnProgress | None = None,
        largest_file: int = LARGEST_FILE,
        parser: ParserProcess | None = None,
    ) -> None:
        self._collection = collection
        self._on_progress = on_progress
        self._parser = parser
        own = collection.path.resolve()
        self.entries = [(entry, root) for root in roots for entry in walk(root, without=own, largest=largest_file)]
        self.identities = Identities(collection.sources())
        self._started = time.monotonic()
        self._results: list[SourceResult] = []
        self._removed = self._embedded = self._reused = 0
        self._documents = self._chunks = 0
        self._files_total = len(self.entries)
        self._bytes_total = sum(entry.size for entry, _ in self.entries if isinstance(entry, Found) and not entry.skip)
        self._bytes_done = self._bytes_current = 0
        self._current: str | None = None
        self._failed_batches = 0

    def execute(self) -> IngestReport:
        """Read, embed and write everything."""
        own_parser = ParserProcess() if self._parser is None else None
        embedder = ThreadPoolExecutor(1, "embed")
        waiting: Future[_Prepared] | None = None
        try:
            with self._collection.bulk():
                reader = Reader(self._collection, self.identities, self._parser or own_parser or ParserProcess())
                for batch in _batches(self._events(reader)):
                    following = embedder.submit(self._prepare, batch)
                    if waiting is not None:
                        self._write(waiting.result())
                    waiting = following
                if waiting is not None:
                    self._write(waiting.result())
        finally:
            embedder.shutdown(wait=False, cancel_futures=True)
            if own_parser is not None:
                own_parser.close()
        return IngestReport(
            tuple(self._results), self._removed, self._embedded, self._reused, time.monotonic() - self._started
        )

    def _events(self, reader: Reader) -> Iterator[Event]:
        for entry, root in self.entries:
            try:
                claimed = self.identities.claim(entry, root)
            except IdTaken as taken:
                yield Unread(entry, entry.name, str(taken))
                continue
            if claimed is None:
                self._files_total -= 1
            elif isinstance(entry, Unreadable):
                yield Unread(entry, claimed[0], entry.reason)
            else:
                yield from reader.read(Job(entry, *claimed))

    def _prepare(self, events: list[Event]) -> _Prepared:
        """Vectors for a batch. Runs in a thread of its own and touches no state of this run."""
        prepared = _Prepared(events)
        reads = [(place, event) for place, event in enumerate(events) if isinstance(event, Read)]
        inputs: dict[str, str] = {}
        hashes: list[tuple[str, ...]] = []
        for _, read in reads:
            texts = [
                embedding_input(read.document.title, read.document.text[span.start : span.end]) for span in read.spans
            ]
            hashes.append(tuple(embedding_hash(text) for text in texts))
            inputs.update(zip(hashes[-1], texts, strict=True))
        if not inputs:
            return prepared
        vectors: dict[str, Vectors] = dict(self._collection.known_vectors(list(inputs)))
        unknown = [digest for digest in inputs if digest not in vectors]
        if unknown:
            try:
                rows = self._collection.embedder.embed_passages([inputs[digest] for digest in unknown])
            except EmbedderError as error:
                prepared.error = error
                return prepared
            vectors.update(zip(unknown, rows, strict=True))
        prepared.embedded = len(unknown)
        prepared.reused = sum(len(group) for group in hashes) - len(unknown)
        for (place, read), group in zip(reads, hashes, strict=True):
            matrix = np.stack([vectors[digest] for digest in group])
            prepared.documents[place] = PreparedDocument(read.document, read.spans, group, matrix)
        return prepared

    def _write(self, batch: _Prepared) -> None:
        if batch.error is not None:
            self._failed_batches += 1
            for event in batch.events:
                if isinstance(event, Read):
                    event.job.failure = str(batch.error)
        elif batch.documents:
            self._failed_batches = 0
        self._embedded += batch.embedded
        self._reused += batch.reused
        # Consecutive documents of one source are one transaction.
        for source_id, group in groupby(enumerate(batch.events), lambda item: _source_of(item[1])):
            members = list(group)
            if source_id is not None:
                self._put(source_id, [batch.documents[place] for place, _ in members if place in batch.documents])
                self._advance([event for _, event in members if isinstance(event, Read)])
                continue
            for _, event in members:
                if isinstance(event, Started):
                    mark = event.job.source(Status.FAILED, INTERRUPTED, digest="")
                    self._collection.finish_source(mark, keep=event.job.own.keys())
                elif isinstance(event, Ended):
                    self._finish(event)
                elif isinstance(event, Unread):
                    self._note(SourceResult(event.id, Status.FAILED, event.reason), event.entry)
        self._tell()
        if batch.error is not None and self._failed_batches >= _GIVE_UP_AFTER:
            raise batch.error

    def _put(self, source_id: str, documents: list[PreparedDocument]) -> None:
        if documents:
            self._collection.upsert(documents, source_id=source_id)
            self._documents += len(documents)
            self._chunks += sum(len(document.spans) for document in documents)

    def _finish(self, event: Ended) -> None:
        job, status, reason, keep = event.job, event.status, event.reason, event.keep
        if job.failure is not None and status is not Status.FAILED:
            status, reason, keep = Status.FAILED, job.failure, frozenset(job.seen) | job.own.keys()
        if keep is not None:
            self._removed += self._collection.finish_source(job.source(status, reason), keep=keep)
        self._note(SourceResult(job.id, status, reason, job.documents, job.chunks), job.found, keep is not None)

    def _advance(self, reads: Sequence[Read]) -> None:
        """Count what was read of a file that is not finished; a character is about a byte."""
        job = reads[0].job
        self._current = job.id
        self._bytes_current = min(job.found.size, self._bytes_current + sum(len(read.document.text) for read in reads))

    def _note(self, result: SourceResult, entry: Found | Unreadable, read: bool = False) -> None:
        self._results.append(result)
        if isinstance(entry, Found) and not entry.skip:
            if read:
                self._bytes_done += entry.size
            else:
                self._bytes_total -= entry.size
        self._bytes_current = 0
        self._current = None
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    files_done=len(self._results),
                    files_total=self._files_total,
                    bytes_done=self._bytes_done + self._bytes_current,
                    bytes_total=self._bytes_total,
                    documents=self._documents,
                    chunks=self._chunks,
                    embedded=self._embedded,
                    seconds=time.monotonic() - self._started,
                    current=self._current,
                )
            )


def _source_of(event: Event) -> str | None:
    """The source of a document; None for what is no document."""
    return event.job.id if isinstance(event, Read) else None


def _batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    batch: list[Event] = []
    chunks = 0
    for event in events:
        batch.append(event)
        chunks += len(event.spans) if isinstance(event, Read) else 0
        if chunks >= BATCH_CHUNKS or len(batch) >= _BATCH_EVENTS:
            yield batch
            batch, chunks = [], 0
    if batch:
        yield batch
