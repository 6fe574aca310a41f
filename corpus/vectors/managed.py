"""The dense index of a collection: Chroma kept level with the record, exact search where it is better or needed.

The indexes hold each distinct vector once; what they find is expanded to the chunks that have it.

Exact search answers while the collection is small (it is then as fast as HNSW, and right), inside filtered sets, and
whenever Chroma is out of order. Chroma is followed from the first write on, but opened only when something needs it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import CollectionClosed
from thresher.corpus.generations import Generations
from thresher.corpus.record.documents import chunk_count, chunks_of, load_vectors, stack_vectors, vectors_of
from thresher.corpus.record.oplog import Progress, last_seq, load_progress, pending_since, save_progress
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.base import VectorIndex
from thresher.corpus.vectors.chroma import TOLERATED_MISSES, ChromaIndex
from thresher.corpus.vectors.exact import ExactIndex, top_k

logger = logging.getLogger(__name__)

NAME = "dense"
EXACT_BELOW = 5_000
"""Collections with fewer chunks than this are searched exactly."""

_PAGE = 1_000
_SELF_QUERIES = 64
_NEWEST = 1_000


class _Stopped(Exception):
    """The collection is closing while an index is being built."""


class ManagedDense:
    """Owner of the Chroma generation and of the exact index. `writing` is the collection's write lock."""

    def __init__(
        self,
        store: Store,
        root: Path,
        dimension: int,
        writing: threading.RLock,
        *,
        exact_below: int = EXACT_BELOW,
    ) -> None:
        self._store = store
        self._generations = Generations(root)
        self._dimension = dimension
        self._writing = writing
        self._exact_below = exact_below
        self._chroma: ChromaIndex | None = None
        self._exact = ExactIndex(dimension)
        self._exact_seq: int | None = None
        self._exact_loading = threading.Lock()
        self._stop = threading.Event()
        self._repair: threading.Thread | None = None
        self._closed = False
        with store.read() as connection:
            self.progress = load_progress(connection, NAME)
            self.chunks = chunk_count(connection)
        self._generations.keep_only(self.progress.generation, quarantined=True)
        if self.progress.fault:
            self._start_repair()

    @property
    def backend(self) -> tuple[Literal["chroma", "exact"], str]:
        """(`chroma` or `exact`, why)."""
        if self.progress.fault:
            return "exact", f"the Chroma index is being rebuilt: {self.progress.fault}"
        if self.chunks < self._exact_below:
            return "exact", f"fewer than {self._exact_below} chunks"
        return "chroma", f"{self._exact_below} chunks or more"

    def catch_up(self) -> None:
        """Bring Chroma level with the record; `progress` then says so, and the caller saves it.

        Needs the write lock. A Chroma that cannot follow is put aside: the write itself stands.
        """
        with self._store.read() as connection:
            self.chunks = chunk_count(connection)
        if self.progress.fault:
            return
        try:
            self._replay(self._open())
        except Exception as error:
            self._quarantine(f"it could not be updated ({error})")

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """The k nearest live (chunk id, cosine similarity), nearest first; fewer only if there are no more."""
        depth = k
        while True:
            found = self._nearest(vector, depth)
            with self._store.read() as connection:
                hits = _expand(found, chunks_of(connection, [i for i, _ in found]), k)
            # Vectors that died since the index last followed take places of live ones: look deeper.
            if len(hits) == k or len(found) < depth:
                return hits
            depth *= 4

    def search_within(self, vector: Vectors, chunk_ids: Sequence[int], k: int) -> list[tuple[int, float]]:
        """Exactly the k nearest among the live of `chunk_ids`."""
        with self._store.read() as connection:
            pairs = vectors_of(connection, chunk_ids)
        vector_ids = sorted({vector_id for vector_id, _ in pairs})
        if self.backend[0] == "exact":
            return _expand(self._level_exact().search_within(vector, vector_ids, k), pairs, k)
        best: list[tuple[int, float]] = []
        for start in range(0, len(vector_ids), _PAGE):
            with self._store.read() as connection:
                ids, rows = load_vectors(connection, vector_ids[start : start + _PAGE], self._dimension)
            best += top_k(np.array(ids, dtype=np.int64), rows, vector, k)
        return _expand(sorted(best, key=lambda hit: (-hit[1], hit[0]))[:k], pairs, k)

    def rebuild(self) -> None:
        """Build a new generation from the stored vectors, switch to it, remove all others."""
        self._end_repair()
        with self._writing:
            self._switch(*self._build())
            self._generations.keep_only(self.progress.generation, quarantined=False)

    def problems(self) -> list[str]:
        """What differs from the record's vectors. Needs the write lock."""
        if self.progress.fault is None:
            self.catch_up()
        if self.progress.fault:
            return [f"Chroma index is out of use, exact search serves: {self.progress.fault}; run `thresher rebuild`"]
        index = self._open()
        live, held = self._vector_ids(), index.ids()
        found = []
        if missing := sorted(live - held):
            found.append(
                f"Chroma index lacks {len(missing)} live vectors (first: {missing[:5]}): run `thresher rebuild`"
            )
        if extra := sorted(held - live):
            found.append(f"Chroma index holds {len(extra)} dead vectors (first: {extra[:5]}): run `thresher rebuild`")
        return found or self._lost(index, sorted(live))

    def wait_for_repair(self, timeout_s: float | None = None) -> bool:
        """Wait until a running repair ends; whether Chroma is in order then."""
        repair = self._repair
        if repair is not None:
            repair.join(timeout_s)
        return self.progress.fault is None

    def close(self) -> None:
        """Stop a repair and close Chroma."""
        self._closed = True
        self._end_repair()
        with self._writing:
            if self._chroma is not None:
                self._chroma.close()
                self._chroma = None

    def _nearest(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """The k nearest (vector id, cosine similarity)."""
        while self.backend[0] == "chroma" and (index := self._ready()) is not None:
            try:
                return index.search(vector, k)
            except Exception as error:
                with self._writing:
                    # A generation that was replaced or closed under this search is not at fault.
                    if self._chroma is index:
                        self._quarantine(f"it could not answer ({error})")
        return self._level_exact().search(vector, k)

    def _vector_ids(self) -> set[int]:
        with self._store.read() as connection:
            return {row[0] for row in connection.execute("SELECT id FROM vectors")}

    def _ready(self) -> VectorIndex | None:
        """Chroma, open and level with what was applied; None while it is out of order."""
        if self._chroma is None:
            with self._writing:
                if self._closed:
                    raise CollectionClosed("the collection is closed; open it again")
                self.catch_up()
                with self._store.write() as connection:
                    save_progress(connection, NAME, self.progress)
        return self._chroma

    def _open(self) -> ChromaIndex:
        if self._chroma is None:
            if self.progress.generation == 0:
                self.progress = Progress(1, 0, None)
                self._generations.fresh(1)
            elif not (path := self._generations.path(self.progress.generation)).is_dir():
                raise FileNotFoundError(f"{path} is missing")
            index = ChromaIndex(self._generations.path(self.progress.generation))
            self._chroma = index
            if index.was_unclean:
                self._replay(index)
                self._reconcile(index)
        return self._chroma

    def _replay(self, index: VectorIndex) -> None:
        with self._store.read() as connection:
            pending = pending_since(connection, "vector", self.progress.applied_seq)
            if pending is None:
                return
            index.apply(add=[], vectors=_empty(self._dimension), remove=pending.removed)
            for ids, rows in _pages(connection, pending.first, self._dimension):
                index.apply(add=ids, vectors=rows, remove=[])
        self.progress = Progress(self.progress.generation, pending.seq, None)

    def _reconcile(self, index: VectorIndex) -> None:
        """After an unclean end, trust the record's list of vectors over the log of what was applied."""
        live, held = self._vector_ids(), index.ids()
        missing = sorted(live - held)
        if held != live:
            logger.warning("Chroma index lacked %d vectors and held %d dead ones", len(missing), len(held - live))
            index.apply(add=[], vectors=_empty(self._dimension), remove=sorted(held - live))
            self._insert(index, missing)
        # Listed is not found: the list and the graph are saved apart, and only the newest can have come between.
        if lost := self._unfound(index, sorted(live)[-_NEWEST:]):
            logger.warning("Chroma index listed %d vectors that it did not find; adding them again", len(lost))
            index.apply(add=[], vectors=_empty(self._dimension), remove=lost)
            self._insert(index, lost)

    def _insert(self, index: VectorIndex, vector_ids: list[int]) -> None:
        with self._store.read() as connection:
            for start in range(0, len(vector_ids), _PAGE):
                ids, rows = load_vectors(connection, vector_ids[start : start + _PAGE], self._dimension)
                index.apply(add=ids, vectors=rows, remove=[])

    def _unfound(self, index: VectorIndex, vector_ids: list[int]) -> list[int]:
        """Which of these do not find themselves."""
        with self._store.read() as connection:
            ids, rows = load_vectors(connection, vector_ids, self._dimension)
        return [i for i, row in zip(ids, rows, strict=True) if i not in {found for found, _ in index.search(row, 10)}]

    def _lost(self, index: VectorIndex, live: list[int]) -> list[str]:
        """Whether the graph has lost vectors that the index lists.

        HNSW may miss single ones in a dense cluster, which is no damage; only many count.
        """
        sample = live[:: max(1, len(live) // _SELF_QUERIES)]
        lost = self._unfound(index, sample)
        if len(lost) <= len(sample) * TOLERATED_MISSES:
            return []
        return [f"Chroma index does not find {len(lost)} of {len(sample)} sampled vectors: run `thresher rebuild`"]

    def _level_exact(self) -> ExactIndex:
        with self._exact_loading, self._store.read() as connection:
            seq = self._exact_seq
            if seq is None:
                self._exact_seq = last_seq(connection)
                for ids, rows in _pages(connection, 0, self._dimension):
                    self._exact.apply(add=ids, vectors=rows, remove=[])
            elif pending := pending_since(connection, "vector", seq):
                self._exact.apply(add=[], vectors=_empty(self._dimension), remove=pending.removed)
                for ids, rows in _pages(connection, pending.first, self._dimension):
                    self._exact.apply(add=ids, vectors=rows, remove=[])
                self._exact_seq = pending.seq
        return self._exact

    def _quarantine(self, why: str) -> None:
        if self.progress.fault:
            return
        if self._chroma is not None:
            self._chroma.abandon()
            self._chroma = None
        aside = self._generations.quarantine(self.progress.generation)
        fault = f"{why}; moved to {aside}" if aside else why
        logger.warning("Chroma index put aside, exact search serves meanwhile: %s", fault)
        self.progress = Progress(self.progress.generation, 0, fault)
        with self._store.write() as connection:
            save_progress(connection, NAME, self.progress)
        self._start_repair()

    def _start_repair(self) -> None:
        if self._closed or self._stop.is_set() or (self._repair is not None and self._repair.is_alive()):
            return
        self._repair = threading.Thread(target=self._run_repair, name="thresher-dense-repair", daemon=True)
        self._repair.start()

    def _end_repair(self) -> None:
        self._stop.set()
        if self._repair is not None:
            self._repair.join()
            self._repair = None
        self._stop.clear()

    def _run_repair(self) -> None:
        try:
            index, progress = self._build(self._check_stop)
            # The lock may be held by someone who waits for this thread to end.
            while not self._writing.acquire(timeout=0.1):
                if self._stop.is_set():
                    index.abandon()
                    raise _Stopped
            try:
                self._switch(index, progress)
            finally:
                self._writing.release()
            self._generations.keep_only(self.progress.generation, quarantined=True)
            logger.info("Chroma index rebuilt as generation %d", self.progress.generation)
        except _Stopped:
            logger.info("rebuilding the Chroma index was interrupted; it starts again on the next open")
        except Exception:
            logger.exception(
                "the Chroma index could not be rebuilt; exact search serves, `thresher rebuild` tries again"
            )

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _build(self, check: Callable[[], None] = lambda: None) -> tuple[ChromaIndex, Progress]:
        generation = self.progress.generation + 1
        index = ChromaIndex(self._generations.fresh(generation))
        try:
            with self._store.read() as connection:
                seq = last_seq(connection)
                for ids, rows in _pages(connection, 0, self._dimension):
                    check()
                    index.apply(add=ids, vectors=rows, remove=[])
        except BaseException:
            index.abandon()
            raise
        return index, Progress(generation, seq, None)

    def _switch(self, index: ChromaIndex, progress: Progress) -> None:
        old, self._chroma, self.progress = self._chroma, index, progress
        self._replay(index)
        with self._store.write() as connection:
            save_progress(connection, NAME, self.progress)
        if old is not None:
            old.close()


def _pages(connection: sqlite3.Connection, first: int, dimension: int) -> Iterator[tuple[list[int], Vectors]]:
    rows = connection.execute("SELECT id, vector FROM vectors WHERE id >= ? ORDER BY id", (first,))
    while page := rows.fetchmany(_PAGE):
        yield [row[0] for row in page], stack_vectors([row[1] for row in page], dimension)


def _expand(found: list[tuple[int, float]], pairs: list[tuple[int, int]], k: int) -> list[tuple[int, float]]:
    """From (vector id, similarity) to the k best (chunk id, similarity), by way of (vector id, chunk id) pairs."""
    similarity = dict(found)
    hits = [(chunk_id, similarity[vector_id]) for vector_id, chunk_id in pairs if vector_id in similarity]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


def _empty(dimension: int) -> Vectors:
    return np.zeros((0, dimension), dtype=np.float32)
