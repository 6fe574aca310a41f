"""The BM25 index of a collection: opened, kept level with the record, rebuilt when in doubt."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from thresher.corpus.generations import Generations
from thresher.corpus.lexical.base import LexicalIndex, Passage
from thresher.corpus.lexical.tantivy_index import TantivyIndex
from thresher.corpus.record.documents import chunk_count
from thresher.corpus.record.oplog import Progress, last_seq, load_progress, pending_since, save_progress
from thresher.corpus.record.store import Store

logger = logging.getLogger(__name__)

NAME = "lexical"
_PAGE = 2_000


class ManagedLexical:
    """Owner of the current generation. Changes are made by whoever holds the collection's write lock."""

    def __init__(self, store: Store, root: Path, *, rebuild: bool = False) -> None:
        """Open the current generation and replay what it lacks; build a new one if that cannot be done."""
        self._store = store
        self._generations = Generations(root)
        with store.read() as connection:
            self.progress = load_progress(connection, NAME)
        # After a crash the index may already hold part of what is replayed.
        self._repeats = True
        self._index = self._open(rebuild)
        self._generations.keep_only(self.progress.generation, quarantined=True)

    def catch_up(self) -> None:
        """Apply what the record has and the index lacks; `progress` then says so, and the caller saves it."""
        with self._store.read() as connection:
            pending = pending_since(connection, "chunk", self.progress.applied_seq)
            if pending is None:
                return
            repeats, self._repeats = self._repeats, True
            self._index.apply(add=[], remove=pending.removed)
            for page in _passages(connection, pending.first):
                self._index.apply(add=page, remove=[p.chunk_id for p in page] if repeats else [])
        self._index.commit()
        self._repeats = False
        self.progress = Progress(self.progress.generation, pending.seq, None)

    def rebuild(self) -> None:
        """Build a new generation from the record, switch to it, remove the old one."""
        self._index = self._build(self._index)
        self._generations.keep_only(self.progress.generation, quarantined=False)

    def search(self, query: str, k: int, *, within: Collection[int] | None = None) -> list[tuple[int, float]]:
        """See `LexicalIndex.search`."""
        return self._index.search(query, k, within=within)

    def analyze(self, text: str) -> list[str]:
        """See `LexicalIndex.analyze`."""
        return self._index.analyze(text)

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """See `LexicalIndex.document_frequency`."""
        return self._index.document_frequency(terms)

    def problems(self, live: set[int]) -> list[str]:
        """What differs from the record's live chunk ids."""
        held = self._index.ids()
        found = []
        if missing := sorted(live - held):
            found.append(f"BM25 index lacks {len(missing)} live chunks (first: {missing[:5]}): run `thresher rebuild`")
        if extra := sorted(held - live):
            found.append(f"BM25 index holds {len(extra)} dead chunks (first: {extra[:5]}): run `thresher rebuild`")
        return found

    def close(self) -> None:
        """Release files and threads."""
        self._index.close()

    def _open(self, rebuild: bool) -> LexicalIndex:
        path = self._generations.path(self.progress.generation)
        if self.progress.generation == 0:
            return self._build(None)
        if rebuild:
            return self._build(None, "it was built by another analyzer")
        if not path.is_dir():
            return self._build(None, f"{path} is missing")
        try:
            self._index = TantivyIndex(path)
            self.catch_up()
            with self._store.read() as connection:
                expected = chunk_count(connection)
            held = self._index.count()
        except Exception as error:  # tantivy raises ValueError, OSError and its own panics
            return self._build(None, f"{path} cannot be used ({error})")
        if held != expected:
            self._index.close()
            return self._build(None, f"{path} holds {held} chunks, the record {expected}")
        return self._index

    def _build(self, old: LexicalIndex | None, why: str | None = None) -> LexicalIndex:
        generation = self.progress.generation + 1
        if why:
            logger.warning("rebuilding the BM25 index: %s", why)
        index = TantivyIndex(self._generations.fresh(generation))
        with self._store.read() as connection:
            seq = last_seq(connection)
            for page in _passages(connection, 0):
                index.apply(add=page, remove=[])
        index.commit()
        self.progress = Progress(generation, seq, None)
        with self._store.write() as connection:
            save_progress(connection, NAME, self.progress)
        self._repeats = False
        if old is not None:
            old.close()
        return index


def _passages(connection: sqlite3.Connection, first: int) -> Iterator[list[Passage]]:
    rows = connection.execute(
        "SELECT c.id, d.title, t.text FROM chunks c JOIN documents d ON d.key = c.document_key "
        "JOIN chunks_text t ON t.chunk_id = c.id "
        "WHERE c.id >= ? ORDER BY c.id",
        (first,),
    )
    while page := rows.fetchmany(_PAGE):
        yield [Passage(*row) for row in page]
