"""What an ingestion does, counted: a result for every source, how far the run is, and the report at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from thresher.corpus.documents import Status
from thresher.corpus.ingestion.identity import Entry
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.ingestion.walk import Found, Unreadable

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What became of one file or page.

    `reason` is set unless it is indexed or unchanged; then it says what was left out of it, if anything was.
    """

    id: str
    status: Status
    reason: str | None = None
    documents: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did.

    Attributes:
        sources: one result a file or page, in the order of reading.
        removed: documents that were deleted, because their file, page or record is gone or has no text any more.
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


class Tally:
    """The numbers of one run over some entries. Used by one thread."""

    def __init__(self, entries: Iterable[Entry], on_progress: OnProgress | None) -> None:
        weights = [_weight(entry) for entry in entries]
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._results: list[SourceResult] = []
        self._removed = self._embedded = self._reused = 0
        self._documents = self._chunks = 0
        self._files_total = len(weights)
        self._bytes_total = sum(weights)
        self._bytes_done = self._bytes_current = 0
        self._current: str | None = None

    def embedded(self, computed: int, reused: int) -> None:
        """Count passages whose vectors were computed, and those whose vectors were known."""
        self._embedded += computed
        self._reused += reused

    def removed(self, documents: int) -> None:
        """Count deleted documents."""
        self._removed += documents

    def written(self, chunks: int) -> None:
        """Count a document of that many chunks."""
        self._documents += 1
        self._chunks += chunks

    def advance(self, entry: Entry, source_id: str, characters: int) -> None:
        """Count what was read of a source that is not finished; a character is about a byte."""
        self._current = source_id
        self._bytes_current = min(_weight(entry), self._bytes_current + characters)

    def end(self, result: SourceResult, entry: Entry, *, read: bool) -> None:
        """Note how a source ended; one that had not to be read counts in no rate."""
        self._results.append(result)
        if read:
            self._bytes_done += _weight(entry)
        else:
            self._bytes_total -= _weight(entry)
        self._bytes_current = 0
        self._current = None
        self.tell()

    def leave_out(self, entry: Entry) -> None:
        """Count an entry no more: the run has met it before."""
        self._files_total -= 1
        self._bytes_total -= _weight(entry)

    def tell(self) -> None:
        """Hand the progress to whoever wants it."""
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

    def report(self) -> IngestReport:
        """The report so far."""
        return IngestReport(
            tuple(self._results), self._removed, self._embedded, self._reused, time.monotonic() - self._started
        )


def _weight(entry: Entry) -> int:
    """Bytes that an entry counts for in the progress."""
    if isinstance(entry, Unreadable) or (isinstance(entry, Found) and entry.skip):
        return 0
    return entry.size
