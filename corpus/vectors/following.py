"""Bringing an index level with the record, and comparing the two."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.record.documents import load_vectors, stack_vectors
from thresher.corpus.record.oplog import Progress, not_yet_applied, pending_since
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.base import VectorIndex
from thresher.corpus.vectors.rows import TOLERATED_MISSES

logger = logging.getLogger(__name__)

PAGE = 1_000
_SELF_QUERIES = 64
_NEWEST = 1_000
_BEYOND = 256


class Follower:
    """The record's side of an index of vectors with this dimension."""

    def __init__(self, store: Store, dimension: int) -> None:
        self._store = store
        self._nothing: Vectors = np.zeros((0, dimension), dtype=np.float32)
        self._dimension = dimension

    def disown(self, index: VectorIndex, progress: Progress) -> None:
        """Take out of an index that was just opened what the record does not know it to have; `replay` must follow.

        Where the record lost its newest operations after the index had applied them, the index has vectors of ids that
        are given out again: left there, they would stand for other passages for good. Ids are given out one by one, so
        such vectors lie right behind the newest that the record knows of; `reconcile` finds the rest by their number.
        """
        with self._store.read() as connection:
            first, newest = not_yet_applied(connection, "vector", progress.applied_seq)
        if index.count():
            index.apply(add=[], vectors=self._nothing, remove=range(first, newest + 1 + _BEYOND))

    def replay(self, index: VectorIndex, progress: Progress) -> Progress:
        """Apply what the record has and the index lacks; returns where it stands then."""
        with self._store.read() as connection:
            pending = pending_since(connection, "vector", progress.applied_seq)
            if pending is None:
                return progress
            index.apply(add=[], vectors=self._nothing, remove=pending.removed)
            for ids, rows in self.pages(connection, pending.first):
                index.apply(add=ids, vectors=rows, remove=[])
        return Progress(progress.generation, pending.seq, None)

    def reconcile(self, index: VectorIndex, *, was_unclean: bool) -> None:
        """Make a level index hold exactly the record's vectors, whatever it had acknowledged and lost since.

        It costs a count where nothing is wrong. After an unclean end the ids are compared, too, and the newest vectors
        looked up by themselves; a local graph and its list of ids were compared before it was opened (`files`).
        """
        if not was_unclean:
            with self._store.read() as connection:
                (expected,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
            if index.count() == expected:
                return
        live = self.vector_ids()
        held = index.ids()
        if held != live:
            logger.warning("Chroma index lacked %d vectors and held %d dead ones", len(live - held), len(held - live))
            index.apply(add=[], vectors=self._nothing, remove=sorted(held - live))
            self._insert(index, sorted(live - held))
        if was_unclean and (lost := self._unfound(index, sorted(live)[-_NEWEST:])):
            logger.warning("Chroma index listed %d vectors that it did not find; adding them again", len(lost))
            index.apply(add=[], vectors=self._nothing, remove=lost)
            self._insert(index, lost)

    def problems(self, index: VectorIndex) -> list[str]:
        """What differs from the record's vectors, and whether the graph has lost vectors that the index lists.

        HNSW may miss single ones in a dense cluster, which is no damage; only many count.
        """
        live, held = self.vector_ids(), index.ids()
        found = []
        if missing := sorted(live - held):
            found.append(
                f"Chroma index lacks {len(missing)} live vectors (first: {missing[:5]}): run `thresher rebuild`"
            )
        if extra := sorted(held - live):
            found.append(f"Chroma index holds {len(extra)} dead vectors (first: {extra[:5]}): run `thresher rebuild`")
        if found:
            return found
        ordered = sorted(live)
        sample = ordered[:: max(1, len(ordered) // _SELF_QUERIES)]
        lost = self._unfound(index, sample)
        if len(lost) <= len(sample) * TOLERATED_MISSES:
            return []
        return [f"Chroma index does not find {len(lost)} of {len(sample)} sampled vectors: run `thresher rebuild`"]

    def vector_ids(self) -> set[int]:
        """The ids of all live vectors."""
        with self._store.read() as connection:
            return {row[0] for row in connection.execute("SELECT id FROM vectors")}

    def pages(self, connection: sqlite3.Connection, first: int) -> Iterator[tuple[list[int], Vectors]]:
        """Live vectors from id `first` on: ids, and rows of shape (len(ids), dimension)."""
        rows = connection.execute("SELECT id, vector FROM vectors WHERE id >= ? ORDER BY id", (first,))
        while page := rows.fetchmany(PAGE):
            yield [row[0] for row in page], stack_vectors([row[1] for row in page], self._dimension)

    def _insert(self, index: VectorIndex, vector_ids: list[int]) -> None:
        with self._store.read() as connection:
            for start in range(0, len(vector_ids), PAGE):
                ids, rows = load_vectors(connection, vector_ids[start : start + PAGE], self._dimension)
                index.apply(add=ids, vectors=rows, remove=[])

    def _unfound(self, index: VectorIndex, vector_ids: list[int]) -> list[int]:
        """Which of these do not find themselves."""
        with self._store.read() as connection:
            ids, rows = load_vectors(connection, vector_ids, self._dimension)
        return [i for i, row in zip(ids, rows, strict=True) if i not in {found for found, _ in index.search(row, 10)}]
