"""Sources, from their origin to chunked documents, as a stream of events in the order in which they must be written."""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, Source, Status
from thresher.corpus.errors import CorpusError, LoaderError
from thresher.corpus.ingestion.identity import Entry, Identities, IdTaken, Remote, Uploaded
from thresher.corpus.ingestion.parsing import Content, Parsing
from thresher.corpus.ingestion.preparing import Chunked
from thresher.corpus.ingestion.walk import Found, Unreadable
from thresher.corpus.ingestion.web.fetch import Fetcher, Gone, NotModified, Outcome, Page, Refused, TooLarge
from thresher.corpus.ingestion.web.pages import body, file_name, pack, unpack
from thresher.corpus.loaders import BadRecord, NoText, Unsupported
from thresher.corpus.loaders.base import file_uri
from thresher.corpus.loaders.formats import STREAMED, format_of

logger = logging.getLogger(__name__)

INTERRUPTED = "its ingestion was interrupted; run the same command again to finish it"
_HASH_BYTES = 1 << 20
_PAGES_AHEAD = 8
_RECORDS = 64
"""Documents whose ids are looked up together."""


@dataclass(slots=True)
class Job:
    """A file or page that is being read.

    Attributes:
        size, modified: of the file; of a page, the bytes that came and 0.
        own: content hashes of the documents that the collection already has from this source.
        seen: ids of the documents that the source holds now; `documents` is how many, `chunks` how many they have.
        problems: records that were left out though they should not have been, and why.
        omitted: parts that were left out as nothing that can be read, and why.
        failure: set from outside to stop the reading; becomes the reason.
        gone: the page does not exist any more.
    """

    entry: Found | Remote
    id: str
    root: str
    size: int = 0
    modified: float = 0.0
    own: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    documents: int = 0
    chunks: int = 0
    problems: list[str] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    digest: str = ""
    failure: str | None = None
    gone: bool = False

    def source(self, status: Status, reason: str | None = None, *, digest: str | None = None) -> Source:
        """The source row for it."""
        content_hash = self.digest if digest is None else digest
        return Source(self.id, self.root, content_hash, self.size, self.modified, status, reason)


@dataclass(frozen=True, slots=True)
class Started:
    """Documents of the source follow. Until its end is written, the source counts as interrupted."""

    job: Job


@dataclass(frozen=True, slots=True)
class Read:
    """A new or changed document."""

    job: Job
    chunked: Chunked


@dataclass(frozen=True, slots=True)
class Ended:
    """The source has reached a status.

    Attributes:
        keep: documents of the source that stay; the rest is deleted. None leaves the collection as it is.
        row: what is written for the source, if that is not `status` and `reason`.
    """

    job: Job
    status: Status
    reason: str | None = None
    keep: frozenset[str] | None = None
    row: Source | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not even become a source: its id is taken, or it cannot be looked at."""

    entry: Entry
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Passed:
    """An entry that this run has met before."""

    entry: Entry


Event = Started | Read | Ended | Unread | Passed
_Opened = tuple[Job, Iterator[Chunked | BadRecord], Content]


class Reader:
    """Reads entries into events. Looks into the collection, writes nothing."""

    def __init__(self, collection: Collection, identities: Identities, parsing: Parsing, fetcher: Fetcher) -> None:
        self._collection = collection
        self._identities = identities
        self._parsing = parsing
        self._fetcher = fetcher

    def events(self, entries: Iterable[tuple[Entry, str]]) -> Iterator[Event]:
        """The events of (entry, root) pairs. No error of an entry's own making leaves here."""
        waiting: deque[Event | _Opened] = deque()
        for opened in self._opened(entries):
            waiting.append(opened)
            while waiting and not self._parsing.may_start(len(waiting)):
                yield from self._events_of(waiting.popleft())
        while waiting:
            yield from self._events_of(waiting.popleft())

    def _opened(self, entries: Iterable[tuple[Entry, str]]) -> Iterator[Event | _Opened]:
        """What must be read, its parsing begun where that is done ahead; events for all else."""
        for item, page in self._fetched(self._claimed(entries)):
            if not isinstance(item, Job):
                yield item
            elif page is not None:
                yield self._open_page(item, page.result())
            else:
                yield self._open_file(item)

    def _claimed(self, entries: Iterable[tuple[Entry, str]]) -> Iterator[Job | Unread | Passed]:
        for entry, root in entries:
            try:
                claimed = self._identities.claim(entry, root)
            except IdTaken as taken:
                yield Unread(entry, entry.name, str(taken))
                continue
            if claimed is None:
                yield Passed(entry)
            elif isinstance(entry, Unreadable):
                yield Unread(entry, claimed[0], entry.reason)
            elif isinstance(entry, Found):
                yield Job(entry, *claimed, size=entry.size, modified=entry.modified)
            else:
                yield Job(entry, *claimed)

    def _fetched(
        self, items: Iterable[Job | Unread | Passed]
    ) -> Iterator[tuple[Job | Unread | Passed, Future[Outcome] | None]]:
        """Pages are fetched a few ahead; what comes between them keeps its place."""
        waiting: deque[tuple[Job | Unread | Passed, Future[Outcome] | None]] = deque()
        for item in items:
            page = None
            if isinstance(item, Job) and isinstance(item.entry, Remote):
                previous = self._identities.previous(item.id)
                known = unpack(previous.content_hash)[1] if previous and self._is_settled(item, previous) else None
                page = self._fetcher.submit(item.entry.url, known)
            waiting.append((item, page))
            while waiting and (waiting[0][1] is None or len(waiting) > _PAGES_AHEAD):
                yield waiting.popleft()
        yield from waiting

    def _open_file(self, job: Job) -> Event | _Opened:
        found = job.entry
        assert isinstance(found, Found)
        previous = self._identities.previous(job.id)
        skip = found.skip or self._parsing.refusal(found.name)
        if skip:
            return self._skipped(job, skip, previous)
        try:
            data = self._fingerprint(job, found.path)
        except OSError as error:
            self._load_own(job)
            return self._failed(job, f"cannot be read: {error.strerror or error}")
        if previous is not None and self._is_settled(job, previous) and previous.content_hash == job.digest:
            return self._unchanged(job, previous)
        self._load_own(job)
        uri = found.uri if isinstance(found, Uploaded) else file_uri(found.path)
        content = Content(job.id, found.path.name, uri, format_of(found.path), data, found.path)
        return job, self._parsing.start(content), content

    def _open_page(self, job: Job, outcome: Outcome) -> Event | _Opened:
        previous = self._identities.previous(job.id)
        self._load_own(job)
        match outcome:
            case NotModified() if previous is not None:
                return self._unchanged(job, previous)
            case Gone(reason):
                job.gone = True
                return self._failed(job, reason)
            case TooLarge(reason):
                return self._skipped(job, reason, previous)
            case Refused(reason):
                return self._failed(job, reason)
            case Page() as page:
                return self._open_body(job, page, previous)
        raise AssertionError(outcome)

    def _open_body(self, job: Job, page: Page, previous: Source | None) -> Event | _Opened:
        name = file_name(page)
        digest = hashlib.sha256(f"{page.url}\n{name}\n{page.charset}\n".encode() + page.data).hexdigest()
        job.digest, job.size = pack(digest, page.validators), len(page.data)
        if previous is not None and self._is_settled(job, previous) and unpack(previous.content_hash)[0] == digest:
            if previous.content_hash == job.digest:
                return self._unchanged(job, previous)
            # The same again under another ETag: kept for the next request.
            row = job.source(previous.status, previous.reason)
            return self._unchanged(job, previous, frozenset(job.own), row)
        try:
            kind = format_of(Path(name))
            content = Content(job.id, name, page.url, kind, body(page, kind))
        except Unsupported as error:
            return self._skipped(job, str(error), previous)
        return job, self._parsing.start(content), content

    def _events_of(self, opened: Event | _Opened) -> Iterator[Event]:
        if not isinstance(opened, tuple):
            yield opened
            return
        job, items, content = opened
        yield Started(job)
        try:
            before = _stamp(content)
            for page in iter(lambda: list(islice(items, _RECORDS)), []):
                yield from self._changed(job, page)
                if job.failure is not None:
                    break
            if _stamp(content) != before:
                job.failure = "the file changed while it was read; run the same command again"
        except NoText as error:
            yield Ended(job, Status.NO_TEXT, str(error), frozenset())
        except Unsupported as error:
            yield Ended(job, Status.SKIPPED, str(error), frozenset())
        except (LoaderError, OSError) as error:
            yield self._failed(job, str(error))
        except CorpusError:
            raise  # the collection's error, not the file's
        except Exception as error:
            logger.exception("reading %s failed in a way that its loader did not expect", job.entry.name)
            yield self._failed(job, f"reading it failed unexpectedly ({type(error).__name__}: {error})")
        else:
            yield self._end(job)

    def _changed(self, job: Job, items: list[Chunked | BadRecord]) -> Iterator[Read]:
        """What of some records is new, and why others cannot be used."""
        documents = [item.document for item in items if isinstance(item, Chunked)]
        owners = self._collection.document_owners([d.id for d in documents if d.id not in job.own])
        for item in items:
            if isinstance(item, BadRecord):
                (job.problems if item.fault else job.omitted).append(f"{item.place}: {item.reason}")
                continue
            document = item.document
            obstacle = self._obstacle(job, document, owners)
            if obstacle is None and not item.spans:
                obstacle = f"{document.id}: no text"
            if obstacle is not None:
                job.problems.append(obstacle)
                continue
            job.seen.add(document.id)
            job.documents += 1
            job.chunks += len(item.spans)
            if job.own.get(document.id) != document.content_hash:
                yield Read(job, item)

    def _obstacle(self, job: Job, document: Document, owners: dict[str, str]) -> str | None:
        """Why the document's id cannot be used, or None."""
        if not self._identities.claim_document(document.id):
            return f"the id {document.id!r} occurs twice"
        owner = owners.get(document.id)
        if owner is None or owner == job.id or not self._identities.is_live(owner):
            return None
        return f"the id {document.id!r} belongs to the source {owner!r}"

    def _load_own(self, job: Job) -> None:
        job.own = {info.id: info.content_hash for info in self._collection.documents(source_id=job.id)}

    def _fingerprint(self, job: Job, path: Path) -> bytes | None:
        """Hash the file; returns its bytes unless it is read as a stream."""
        if format_of(path) not in STREAMED:
            data = path.read_bytes()
            job.digest = hashlib.sha256(data).hexdigest()
            return data
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_HASH_BYTES):
                digest.update(block)
        job.digest = digest.hexdigest()
        return None

    def _is_settled(self, job: Job, previous: Source) -> bool:
        """Whether an equal hash means that there is nothing to do."""
        settled = previous.status in (Status.INDEXED, Status.NO_TEXT, Status.SKIPPED)
        return settled and previous.root == job.root and not self._parsing.may_read_more(previous.reason)

    def _unchanged(
        self, job: Job, previous: Source, keep: frozenset[str] | None = None, row: Source | None = None
    ) -> Ended:
        status = Status.UNCHANGED if previous.status is Status.INDEXED else previous.status
        job.documents, job.chunks = previous.documents, previous.chunks
        return Ended(job, status, previous.reason, keep, row)

    def _skipped(self, job: Job, reason: str, previous: Source | None) -> Ended:
        unchanged = previous is not None and (previous.status, previous.reason) == (Status.SKIPPED, reason)
        return Ended(job, Status.SKIPPED, reason, None if unchanged else frozenset())

    def _end(self, job: Job) -> Ended:
        if job.failure is not None:
            return self._failed(job, job.failure)
        if not job.problems:
            left_out = _summary(job.omitted, len(job.seen) + len(job.omitted), "parts hold no text that can be read")
            if not job.seen:
                return Ended(job, Status.NO_TEXT, left_out or "the file holds no records", frozenset())
            return Ended(job, Status.INDEXED, left_out, frozenset(job.seen))
        total = len(job.seen) + len(job.problems)
        rest = "the others are indexed" if job.seen else "none is indexed"
        return self._failed(job, f"{_summary(job.problems, total, 'records could not be used')}; {rest}")

    def _failed(self, job: Job, reason: str) -> Ended:
        """A failure deletes nothing: what was last read well stays."""
        return Ended(job, Status.FAILED, reason, frozenset(job.seen) | job.own.keys())


def _summary(problems: list[str], total: int, what: str) -> str | None:
    if not problems:
        return None
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{len(problems)} of {total} {what} ({problems[0]}{more})"


def _stamp(content: Content) -> tuple[int, int] | None:
    """What shows that a file that is read as a stream was changed meanwhile."""
    if content.data is not None or content.path is None:
        return None
    status = os.stat(content.path)
    return status.st_size, status.st_mtime_ns
