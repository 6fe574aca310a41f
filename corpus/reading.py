"""One file, from disk to chunked documents, as a stream of events in the order in which they must be written."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from thresher.corpus.chunker import CHUNKER_VERSION, chunk_text
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, Source, Span, Status
from thresher.corpus.errors import CorpusError, LoaderError
from thresher.corpus.identity import Identities
from thresher.corpus.loaders import BadRecord, NoText, ParserProcess, Unsupported, load_file
from thresher.corpus.loaders.formats import Format, format_of
from thresher.corpus.walk import Found, Unreadable

logger = logging.getLogger(__name__)

INTERRUPTED = "its ingestion was interrupted; run the same command again to finish it"
_HASH_BYTES = 1 << 20


@dataclass(slots=True)
class Job:
    """A file that is being read.

    Attributes:
        own: content hashes of the documents that the collection already has from this source.
        seen: ids of the documents that the file holds now; `documents` is how many, `chunks` how many they have.
        problems: records that were left out, and why.
        failure: set from outside to stop the reading; becomes the reason.
    """

    found: Found
    id: str
    root: str
    own: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    documents: int = 0
    chunks: int = 0
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    failure: str | None = None

    def source(self, status: Status, reason: str | None = None, *, digest: str | None = None) -> Source:
        """The source row for this file."""
        found = self.found
        content_hash = self.digest if digest is None else digest
        return Source(self.id, self.root, content_hash, found.size, found.modified, status, reason)


@dataclass(frozen=True, slots=True)
class Started:
    """Documents of the source follow. Until its end is written, the source counts as interrupted."""

    job: Job


@dataclass(frozen=True, slots=True)
class Read:
    """A new or changed document."""

    job: Job
    document: Document
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The source has reached a status.

    Attributes:
        keep: documents of the source that stay; the rest is deleted. None leaves the collection as it is.
    """

    job: Job
    status: Status
    reason: str | None = None
    keep: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not even become a source: its id is taken, or it cannot be looked at."""

    entry: Found | Unreadable
    id: str
    reason: str


Event = Started | Read | Ended | Unread


class Reader:
    """Reads files into events. `own` and the id checks look into the collection; nothing is written."""

    def __init__(self, collection: Collection, identities: Identities, parser: ParserProcess) -> None:
        self._collection = collection
        self._identities = identities
        self._parser = parser
        self._same_chunker = collection.manifest.chunker == CHUNKER_VERSION

    def read(self, job: Job) -> Iterator[Event]:
        """The events of one file. No error of the file's own making leaves here."""
        previous = self._identities.previous(job.id)
        if job.found.skip:
            unchanged = previous is not None and (previous.status, previous.reason) == (Status.SKIPPED, job.found.skip)
            yield Ended(job, Status.SKIPPED, job.found.skip, None if unchanged else frozenset())
            return
        try:
            data = self._fingerprint(job)
        except OSError as error:
            yield self._failed(job, f"cannot be read: {error.strerror or error}")
            return
        if previous is not None and self._is_unchanged(job, previous):
            status = Status.UNCHANGED if previous.status is Status.INDEXED else previous.status
            job.documents, job.chunks = previous.documents, previous.chunks
            yield Ended(job, status, previous.reason)
            return
        job.own = {info.id: info.content_hash for info in self._collection.documents(source_id=job.id)}
        yield Started(job)
        try:
            yield from self._documents(job, data)
        except NoText as error:
            yield Ended(job, Status.NO_TEXT, str(error), frozenset())
        except Unsupported as error:
            yield Ended(job, Status.SKIPPED, str(error), frozenset())
        except (LoaderError, OSError) as error:
            yield self._failed(job, str(error))
        except CorpusError:
            raise  # the collection's error, not the file's
        except Exception as error:
            logger.exception("reading %s failed in a way that its loader did not expect", job.found.path)
            yield self._failed(job, f"reading it failed unexpectedly ({type(error).__name__}: {error})")
        else:
            yield self._end(job)

    def _fingerprint(self, job: Job) -> bytes | None:
        """Hash the file; returns its bytes unless it is read as a stream."""
        path = job.found.path
        if format_of(path) is not Format.JSONL:
            data = path.read_bytes()
            job.digest = hashlib.sha256(data).hexdigest()
            return data
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_HASH_BYTES):
                digest.update(block)
        job.digest = digest.hexdigest()
        return None

    def _is_unchanged(self, job: Job, previous: Source) -> bool:
        settled = previous.status in (Status.INDEXED, Status.NO_TEXT, Status.SKIPPED)
        return settled and self._same_chunker and previous.content_hash == job.digest and previous.root == job.root

    def _documents(self, job: Job, data: bytes | None) -> Iterator[Read]:
        path = job.found.path
        before = _stamp(path)
        for item in load_file(path, source_id=job.id, data=data, parser=self._parser):
            if job.failure is not None:
                return
            if isinstance(item, BadRecord):
                job.problems.append(f"{item.place}: {item.reason}")
                continue
            obstacle = self._obstacle(job, item)
            if obstacle:
                job.problems.append(obstacle)
                continue
            spans = tuple(chunk_text(item.text))
            if not spans:
                job.problems.append(f"{item.id}: no text")
                continue
            job.seen.add(item.id)
            job.documents += 1
            job.chunks += len(spans)
            if job.own.get(item.id) != item.content_hash:
                yield Read(job, item, spans)
        if data is None and _stamp(path) != before:
            job.failure = "the file changed while it was read; run the same command again"

    def _obstacle(self, job: Job, document: Document) -> str | None:
        """Why the document's id cannot be used, or None."""
        if not self._identities.claim_document(document.id):
            return f"the id {document.id!r} occurs twice"
        if document.id in job.own or not self._collection.document_hashes([document.id]):
            return None
        owner = self._collection.document(document.id)
        if owner is None or owner.source_id == job.id or not self._identities.is_live(owner.source_id):
            return None
        return f"the id {document.id!r} belongs to the source {owner.source_id!r}"

    def _end(self, job: Job) -> Ended:
        if job.failure is not None:
            return self._failed(job, job.failure)
        if not job.problems:
            if not job.seen:
                return Ended(job, Status.NO_TEXT, "the file holds no records", frozenset())
            return Ended(job, Status.INDEXED, None, frozenset(job.seen))
        total = len(job.seen) + len(job.problems)
        rest = "the others are indexed" if job.seen else "none is indexed"
        more = f" and {len(job.problems) - 1} more" if len(job.problems) > 1 else ""
        reason = f"{len(job.problems)} of {total} records could not be used ({job.problems[0]}{more}); {rest}"
        return self._failed(job, reason)

    def _failed(self, job: Job, reason: str) -> Ended:
        """A failure deletes nothing: what was last read well stays."""
        return Ended(job, Status.FAILED, reason, frozenset(job.seen) | job.own.keys())


def _stamp(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
