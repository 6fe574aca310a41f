"""The BM25 index of a collection: opened, kept level with the record, rebuilt when in doubt."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from thresher.corpus.access import building
from thresher.corpus.documents import Vectors
from thresher.corpus.errors import CollectionClosed, CorpusError, IndexUnreachable
from thresher.corpus.lexical.base import BothRankings, LexicalHome, LexicalIndex, Passage
from thresher.corpus.lexical.local import IDENTITY, LocalLexicalHome
from thresher.corpus.record.documents import chunk_count
from thresher.corpus.record.oplog import (
    Progress,
    last_seq,
    load_progress,
    not_yet_applied,
    pending_since,
    save_progress,
)
from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.store import Store

logger = logging.getLogger(__name__)

NAME = "lexical"

LEXICAL_HOME = "lexical_home"
"""Row of the record's `meta` with the identity of the home, where that is not the collection's own directory."""

_PAGE = 2_000
_TRIED = 20


class ManagedLexical:
    """Owner of the current generation. Changes are made by whoever holds the collection's write lock."""

    def __init__(
        self,
        store: Store,
        home: LexicalHome | Path,
        *,
        rebuild: bool = False,
        writing: threading.RLock | None = None,
    ) -> None:
        """Open the current generation and replay what it lacks; build a new one if that cannot be done.

        `home` may be a directory for tantivy; `writing` is the collection's write lock.

        Raises:
            IndexUnreachable: the home does not answer. Nothing was changed.
        """
        self._store = store
        self._home: LexicalHome = LocalLexicalHome(home) if isinstance(home, Path) else home
        with store.read() as connection:
            self.progress = load_progress(connection, NAME)
        # After a crash the index may already hold part of what is replayed.
        self._repeats = True
        self._writing = writing or threading.RLock()
        self._repair: threading.Thread | None = None
        self._closed = False
        self._index = self._open(rebuild)
        self._home.keep_only(self.progress.generation, quarantined=True)

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
        self._home.keep_only(self.progress.generation, quarantined=False)

    def search(self, query: str, k: int, *, within: Collection[int] | None = None) -> list[tuple[int, float]]:
        """See `LexicalIndex.search`. An index that cannot answer finds nothing, and is built anew in the background."""
        index = self._index
        try:
            return index.search(query, k, within=within)
        except CorpusError:
            raise
        except Exception as error:  # a file of a segment is damaged or gone: tantivy opens them when it needs them
            if self._index is not index:
                return self.search(query, k, within=within)
            self._start_repair(index, error)
            return []

    def wait_for_repair(self, timeout_s: float | None = None) -> None:
        """Wait until a rebuild in the background has ended."""
        if self._repair is not None:
            self._repair.join(timeout_s)

    def rankings(
        self, query: str, vector: Vectors, k: int
    ) -> tuple[list[tuple[int, float]], list[tuple[int, float]]] | None:
        """See `BothRankings`; None where the index is not one."""
        return self._index.rankings(query, vector, k) if isinstance(self._index, BothRankings) else None

    def analyze(self, text: str) -> list[str]:
        """See `LexicalIndex.analyze`."""
        return self._index.analyze(text)

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """See `LexicalIndex.document_frequency`."""
        return self._index.document_frequency(terms)

    def problems(self, live: set[int]) -> list[str]:
        """What differs from the record's live chunk ids."""
        try:
            held = self._index.ids()
            with self._store.read() as connection:
                for passage in next(_passages(connection, 0), [])[:_TRIED]:
                    self._index.search(passage.text, 10)
        except CorpusError:
            raise
        except Exception as error:
            return [f"BM25 index cannot be read ({error}): run `thresher rebuild`"]
        found = []
        if missing := sorted(live - held):
            found.append(f"BM25 index lacks {len(missing)} live chunks (first: {missing[:5]}): run `thresher rebuild`")
        if extra := sorted(held - live):
            found.append(f"BM25 index holds {len(extra)} dead chunks (first: {extra[:5]}): run `thresher rebuild`")
        return found

    def interrupt(self) -> None:
        """Break off a rebuild that is under way: the collection is being closed."""
        self._closed = True

    def close(self) -> None:
        """Release files and threads."""
        self._closed = True
        self.wait_for_repair()
        self._index.close()
        self._home.close()

    def _open(self, rebuild: bool) -> LexicalIndex:
        generation = self.progress.generation
        if generation == 0:
            return self._build(None)
        if rebuild:
            return self._build(None, "it was built by another analyzer")
        recorded = self._store.meta(LEXICAL_HOME) or IDENTITY
        if recorded != self._home.identity:
            left = "" if recorded == IDENTITY else ", where it stays until it is removed there"
            return self._build(None, f"it is to be at {self._home.identity}, and was at {recorded}{left}")
        try:
            self._index = self._home.open(generation)
            self.catch_up()
            with self._store.read() as connection:
                expected = chunk_count(connection)
                _, newest = not_yet_applied(connection, "chunk", self.progress.applied_seq)
            held, ahead = self._index.count(), self._index.holds_above(newest)
        except IndexUnreachable:
            raise
        except Exception as error:  # tantivy raises ValueError, OSError and its own panics
            return self._build(None, f"generation {generation} cannot be used ({error})")
        if held != expected:
            self._index.close()
            return self._build(None, f"generation {generation} holds {held} chunks, the record {expected}")
        if ahead:
            # Numbers may agree by chance. Those ids are given out again, and would then name other passages.
            self._index.close()
            return self._build(None, f"generation {generation} has what the record has lost since")
        return self._index

    def _start_repair(self, broken: LexicalIndex, error: Exception) -> None:
        if self._repair is not None and self._repair.is_alive():
            return
        logger.warning("BM25 index cannot answer (%s); it is built anew, and vectors alone are searched", error)
        self._repair = threading.Thread(
            target=self._run_repair, args=(broken,), name="thresher-bm25-repair", daemon=True
        )
        self._repair.start()

    def _run_repair(self, broken: LexicalIndex) -> None:
        with self._writing:
            if self._closed or self._index is not broken:
                return
            try:
                self.rebuild()
            except CollectionClosed:
                logger.info("building the BM25 index anew was broken off; the next search that needs it begins again")
            except Exception:
                logger.exception("the BM25 index could not be built anew; `thresher rebuild` tries again")

    def _build(self, old: LexicalIndex | None, why: str | None = None) -> LexicalIndex:
        generation = self.progress.generation + 1
        if why:
            logger.warning("rebuilding the BM25 index: %s", why)
        index: LexicalIndex | None = None
        try:
            with building("BM25"):
                index = self._home.fresh(generation)
                with self._store.read() as connection:
                    seq = last_seq(connection)
                    for page in _passages(connection, 0):
                        if self._closed:
                            raise CollectionClosed("the collection is closed; open it again")
                        index.apply(add=page, remove=[])
                index.commit()
            progress = Progress(generation, seq, None)
            with self._store.write() as connection:
                save_progress(connection, NAME, progress)
                if self._home.identity == IDENTITY:
                    connection.execute("DELETE FROM meta WHERE name = ?", (LEXICAL_HOME,))
                else:
                    put_meta(connection, LEXICAL_HOME, self._home.identity)
        except BaseException:
            with suppress(Exception):
                if index is not None:
                    index.close()
                self._home.keep_only(self.progress.generation, quarantined=True)
            raise
        self.progress = progress
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
