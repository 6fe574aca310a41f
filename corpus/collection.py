"""A collection: one private corpus of one tenant, in one directory, owned by one process.

The order of every write: one SQLite transaction with an operation row (the durable point), then BM25, then Chroma, then
the record of how far each has come. A crash in between is made good on the next open by replaying the difference.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from thresher.corpus.access import accessible
from thresher.corpus.backends import DEFAULT_BACKENDS, Backends
from thresher.corpus.census import take_stats
from thresher.corpus.chunker import CHUNKER_VERSION, Chunker, load_chunker
from thresher.corpus.derived import DerivedIndexes
from thresher.corpus.documents import Hit, PreparedDocument, Source, Vectors
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.errors import CollectionClosed, InvalidQuery
from thresher.corpus.filters import Filter
from thresher.corpus.grep.match import GrepMemory, grep
from thresher.corpus.info import CollectionStats, RebuildReport, VerifyReport
from thresher.corpus.layout import lay_out, open_record
from thresher.corpus.lexical.analyzer import ANALYZER_VERSION
from thresher.corpus.lifecycle.verify import find_problems
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.manifest import Manifest
from thresher.corpus.paths import DATABASE, is_collection, require_collection
from thresher.corpus.reads import RecordReads
from thresher.corpus.record import documents as rows
from thresher.corpus.record import sources as source_rows
from thresher.corpus.record.batch import Finish, Put, Step, apply_steps, checked_steps
from thresher.corpus.record.change import Change
from thresher.corpus.record.oplog import prune_tombstones
from thresher.corpus.record.store import Store
from thresher.corpus.retrieval.queries import QueryVectors
from thresher.corpus.retrieval.ranking import PLAIN, Ranking, Warn
from thresher.corpus.retrieval.search import Candidates, HybridSearch
from thresher.corpus.vectors.managed import EXACT_BELOW

logger = logging.getLogger(__name__)


class Collection(RecordReads):
    """Thread-safe. Reads see a consistent snapshot; writes are durable when they return."""

    def __init__(
        self,
        path: Path,
        embedder: Embedder,
        manifest: Manifest,
        lock: DirectoryLock,
        store: Store,
        exact_below: int,
        backends: Backends,
    ) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.embedder = embedder
        self.manifest = manifest
        self.backends = backends
        self._lock = lock
        self._writing = threading.RLock()
        self._closed = False
        self._query_vectors = QueryVectors(embedder)
        self._grep_memory = GrepMemory(store)
        self._store = store
        try:
            with self._store.write() as connection:
                prune_tombstones(connection)
            stale = manifest.analyzer != ANALYZER_VERSION
            self._derived = DerivedIndexes(
                path,
                self._store,
                manifest.embedder,
                backends,
                self._writing,
                exact_below=exact_below,
                rebuild_bm25=stale,
            )
            try:
                if stale:
                    self.manifest = manifest.with_analyzer(ANALYZER_VERSION)
                    self.manifest.write(path)
            except BaseException:
                self._derived.close()
                raise
        except BaseException:
            self._store.close()
            raise
        self._dense, self._lexical = self._derived.dense, self._derived.lexical
        self._search = HybridSearch(self._store, self._dense, self._lexical, self.scoring)

    @classmethod
    def create(
        cls,
        path: Path,
        embedder: Embedder,
        *,
        name: str | None = None,
        chunker: str = CHUNKER_VERSION,
        exact_below: int = EXACT_BELOW,
        backends: Backends = DEFAULT_BACKENDS,
    ) -> Collection:
        """Lay out a new collection in `path` and open it; `chunker` is a spec of `load_chunker`.

        Raises:
            CollectionExists: there is one already.
            CollectionLocked: another process is creating it.
            CollectionUnavailable, StorageFull: the directory cannot be made or written.
            EmbedderError: the embedder cannot be loaded; nothing was made.
            UnknownChunker: this release has no chunker of that spec; nothing was made.
        """
        path = Path(path)
        load_chunker(chunker)
        info = embedder.info
        with accessible(path):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)  # documents are private
        lock = DirectoryLock(path)
        try:
            with accessible(path):
                manifest = lay_out(path, info, name, chunker)
                return cls(path, embedder, manifest, lock, Store(path / DATABASE), exact_below, backends)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        embedder: Embedder | None = None,
        exact_below: int = EXACT_BELOW,
        backends: Backends = DEFAULT_BACKENDS,
    ) -> Collection:
        """Open an existing collection; without an embedder, the manifest says which to load.

        Raises:
            CollectionNotFound: nothing there.
            CollectionLocked: it is open elsewhere; has the owner's pid.
            CollectionMismatch: its vectors come from another embedder.
            CollectionDamaged: its record cannot be read; says what to do.
            CollectionUnavailable: the operating system does not let its files be used.
        """
        path = Path(path)
        require_collection(path)
        lock = DirectoryLock(path)
        store: Store | None = None
        try:
            manifest, store = open_record(path)
            if embedder is None:
                # Not before the lock: loading a model only to find the directory taken wastes seconds.
                from thresher.corpus.embedders import load_embedder

                embedder = load_embedder(manifest.embedder.spec)
            manifest.check_embedder(embedder.info, path)
            with accessible(path):
                return cls(path, embedder, manifest, lock, store, exact_below, backends)
        except BaseException:
            if store is not None:
                store.close()
            lock.release()
            raise

    @classmethod
    def open_or_create(
        cls, path: Path, embedder: Embedder, *, chunker: str | None = None, backends: Backends = DEFAULT_BACKENDS
    ) -> Collection:
        """Open the collection in `path`, or lay out a new one there; see `open` and `create` for errors.

        Raises:
            CollectionMismatch: it exists with another embedder, or with another chunker than `chunker` if that is
                given; has the command that changes it.
        """
        path = Path(path)
        if not is_collection(path):
            return cls.create(path, embedder, chunker=chunker or CHUNKER_VERSION, backends=backends)
        opened = cls.open(path, embedder=embedder, backends=backends)
        try:
            if chunker is not None:
                opened.manifest.check_chunker(chunker, opened.path)
        except BaseException:
            opened.close()
            raise
        return opened

    @property
    def chunker(self) -> Chunker:
        """What cuts the texts that are written to the collection.

        Raises:
            CollectionMismatch: this release does not have it; has the command that changes it.
        """
        return self.manifest.load_chunker(self.path)

    @property
    def record(self) -> Store:
        """The record, for the corpus's own modules."""
        return self._store

    @property
    def scoring(self) -> str:
        """What makes the scores of its searches. A fusion that was tuned on other scores does not apply to them."""
        embedder = self.manifest.embedder
        return f"{embedder.spec} {embedder.revision} and analyzer {self.manifest.analyzer}"

    def __enter__(self) -> Collection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every index and give the directory up; a rebuild under way is broken off. Safe to call twice."""
        self._derived.interrupt()
        with self._writing:
            if self._closed:
                return
            self._closed = True
        try:
            self._search.close()
            self._grep_memory.close()
            self._derived.close()
            with suppress(CollectionClosed), self._store.write() as connection:
                prune_tombstones(connection)
        finally:
            try:
                self._store.close()
            finally:
                self._lock.release()

    # Writes

    def upsert(self, documents: Sequence[PreparedDocument], *, source_id: str) -> None:
        """Insert documents, or replace them whole, as one transaction. When this returns they can be found.

        NUL characters and lone surrogates are stored as U+FFFD.

        Raises:
            ValueError: spans, hashes and vectors of a document do not fit each other or the collection, or a number
                in its metadata is not finite.
            CollectionMismatch: this release does not have the collection's chunker; has the command that changes it.
        """
        self.write_batch([Put(prepared, source_id) for prepared in documents])

    def write_batch(self, steps: Sequence[Step], *, at_once: bool = False) -> int:
        """Documents and source rows, in order, as one transaction. Returns how many documents were deleted.

        With `at_once` they can be found when this returns, even if another thread is inside `bulk`.

        Raises:
            ValueError, CollectionMismatch: as for `upsert`.
        """
        steps = checked_steps(steps, self.manifest.embedder.dimension)
        if not steps:
            return 0
        self.manifest.load_chunker(self.path)
        with self._writing:
            self._check_open()
            with self._store.write() as connection:
                removed, touched = apply_steps(connection, steps)
            if touched:
                self._derived.follow(
                    sum(len(step.prepared.spans) for step in steps if isinstance(step, Put)), at_once=at_once
                )
            return removed

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """For many small writes: each is as durable as ever, but the derived indexes follow in larger steps.

        Committing BM25 and Chroma costs about 30 ms however little there is to commit. Inside this block they follow
        every 1,000 chunks and at its end, so a search may not find the newest documents until then; it never shows
        deleted ones. After a crash the next open makes up for what is missing.
        """
        with self._derived.bulk():
            yield

    def delete_documents(self, document_ids: AbstractCollection[str]) -> int:
        """Delete documents; unknown ids are ignored. Returns how many there were."""
        with self._writing:
            self._check_open()
            with self._store.write() as connection:
                keys = rows.keys_of(connection, document_ids)
                _remove(connection, "delete", keys)
            if keys:
                self._derived.follow()
            return len(keys)

    def finish_source(self, source: Source, *, keep: AbstractSet[str]) -> int:
        """Delete the source's documents that are not in `keep` and write its row, in one transaction.

        The counts in `source` are ignored: a source's documents and chunks are counted when it is read.
        Returns how many documents were deleted. `write_batch`, of which this is one step, says what is raised.
        """
        return self.write_batch([Finish(source, frozenset(keep))])

    def remove_sources(self, source_ids: AbstractCollection[str]) -> int:
        """Delete sources and their documents. Returns how many documents there were."""
        with self._writing:
            self._check_open()
            with self._store.write() as connection:
                keys = [key for source_id in source_ids for key in rows.keys_of_source(connection, source_id)]
                _remove(connection, "remove_sources", keys)
                source_rows.drop_sources(connection, source_ids)
            if keys:
                self._derived.follow()
            return len(keys)

    # Searches

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        candidates: int = 50,
        where: Filter | None = None,
        exclude: AbstractSet[int] = frozenset(),
        vector: Vectors | None = None,
        ranking: Ranking = PLAIN,
        on_warning: Warn | None = None,
    ) -> list[Hit]:
        """The best passages for a query: dense and BM25 candidates, fused by reciprocal rank or as `ranking` says.

        Args:
            query: any text; no syntax.
            limit: how many hits.
            candidates: how many each ranking contributes, at least `limit`.
            exclude: chunk ids to leave out; the list is still filled up to `limit`, and ranks still count them.
            vector: the query's vector, shape (dimension,), if the caller has it.
            on_warning: told what went wrong without costing the results (the reranker failed); logged by default.

        Raises:
            InvalidQuery: the query is blank, or the filter compares text with a number.
        """
        if not query.strip():
            raise InvalidQuery("the query is blank: say what to look for")
        if limit < 1:
            raise InvalidQuery(f"limit must be at least 1, got {limit}")
        self._check_open()
        if vector is None:
            vector = self.query_vectors([query])[0]
        return self._search(
            query,
            np.ascontiguousarray(vector, dtype=np.float32),
            limit=limit,
            candidates=candidates,
            where=where,
            exclude=exclude,
            ranking=ranking,
            warn=on_warning or logger.warning,
        )

    def candidates(self, query: str, *, depth: int = 50) -> Candidates:
        """What a search fuses for a query: `depth` chunks from each index, with both scores of each."""
        self._check_open()
        return self._search.candidates(query, self.query_vectors([query])[0], depth)

    def grep(
        self,
        pattern: str,
        *,
        limit: int = 5,
        where: Filter | None = None,
        exclude: AbstractSet[int] = frozenset(),
        deadline_s: float = 2.0,
        ignore_case: bool = False,
    ) -> list[Hit]:
        """Chunks that an RE2 pattern matches, by document id, then position.

        Raises:
            InvalidQuery: the pattern is empty or not RE2.
            SearchTimeout: the deadline passed.
        """
        if limit < 1:
            raise InvalidQuery(f"limit must be at least 1, got {limit}")
        with self._store.read() as connection:
            return grep(
                connection,
                self._grep_memory,
                pattern,
                limit=limit,
                where=where,
                exclude=exclude,
                deadline_s=deadline_s,
                ignore_case=ignore_case,
            )

    def query_vectors(self, texts: Sequence[str]) -> Vectors:
        """Vectors of short texts as queries, shape (len(texts), dimension); recent ones come from a cache."""
        self._check_open()
        return self._query_vectors(texts)

    def analyze(self, text: str) -> list[str]:
        """The terms by which BM25 searches a text, each once, in order."""
        self._check_open()
        return self._lexical.analyze(text)

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """In how many chunks each term occurs; terms as `analyze` gives them. May run slightly high."""
        self._check_open()
        return self._lexical.document_frequency(terms)

    # Care

    def stats(self) -> CollectionStats:
        """Counts, sizes and the state of the derived indexes."""
        return take_stats(self.path, self.manifest, self._store, self._derived)

    def verify(self) -> VerifyReport:
        """Cross-check the record, its trigram index, BM25 and Chroma. Writes wait meanwhile."""
        with self._writing:
            self._check_open()
            report = find_problems(self._store, self._lexical, self._dense)
            self._derived.save_progress()
            return report

    def rebuild(self) -> RebuildReport:
        """Build every derived index anew from the record and switch to it. Searches go on meanwhile."""
        started = time.monotonic()
        self._check_open()
        generations = self._derived.rebuild()
        return RebuildReport(chunks=self.chunk_count, seconds=time.monotonic() - started, generations=generations)

    def compact(self) -> RebuildReport:
        """Erase deleted documents for good: no byte of them stays in the directory. See `erase` for errors and limits.

        Run it while nobody searches: a search that is under way keeps old pages in the write-ahead log.
        """
        from thresher.corpus.lifecycle.erase import erase

        self._check_open()
        return erase(
            self.path, self.manifest.chunker, self._store, self._lexical, self._dense, self._writing, self.backends
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """Derived indexes that are out of order now, and why; searches go on without them meanwhile. Reads no file."""
        return self._derived.faults

    def warm(self) -> None:
        """Open what the first search would have to wait for: Chroma takes seconds to load a large index."""
        with suppress(CollectionClosed):
            self._dense.warm()

    def wait_for_repair(self, timeout_s: float | None = None) -> bool:
        """Wait for rebuilds that run in the background; whether Chroma is in order then."""
        return self._derived.wait_for_repair(timeout_s)

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionClosed(f"collection {self.name!r} is closed; open it again")


def _remove(connection: sqlite3.Connection, kind: str, keys: Sequence[int]) -> None:
    if keys:
        change = Change(connection, kind)
        change.remove(keys)
        change.finish()
