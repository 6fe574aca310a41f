"""The derived indexes of a collection, BM25 and dense, and how they follow its record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from thresher.corpus.backends import Backends
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CorpusError, IndexUnreachable
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.paths import CHROMA, TANTIVY
from thresher.corpus.record.collection_id import collection_id
from thresher.corpus.record.oplog import save_progress
from thresher.corpus.record.schema import rebuild_trigrams
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.managed import ManagedDense

logger = logging.getLogger(__name__)

_BULK_CHUNKS = 1_000


class DerivedIndexes:
    """BM25 and dense index as one. Changes are made by whoever holds `writing`, the collection's write lock."""

    def __init__(
        self,
        path: Path,
        store: Store,
        embedder: EmbedderInfo,
        backends: Backends,
        writing: threading.RLock,
        *,
        exact_below: int,
        rebuild_bm25: bool,
    ) -> None:
        """Open both indexes of the collection in `path`; with `rebuild_bm25`, because the analyzer changed, one anew.

        Raises:
            IndexUnreachable: the server that holds BM25 does not answer; nothing was changed.
        """
        self._store = store
        self._writing = writing
        self._bulk = 0
        self._unfollowed = 0
        self._closed = False
        self.lexical = ManagedLexical(
            store,
            backends.lexical.home(path / TANTIVY, store, embedder),
            rebuild=rebuild_bm25,
            writing=writing,
        )
        try:
            self.dense = ManagedDense(
                store,
                backends.dense.home(path / CHROMA, collection_id(store)),
                embedder.dimension,
                writing,
                exact_below=exact_below,
            )
            try:
                with store.write() as connection:
                    save_progress(connection, "lexical", self.lexical.progress)
            except BaseException:
                self.dense.close()
                raise
        except BaseException:
            self.lexical.close()
            raise

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Inside it the indexes follow every 1,000 chunks, and once more at its end."""
        with self._writing:
            self._bulk += 1
        try:
            yield
        finally:
            with self._writing:
                self._bulk -= 1
                if not self._bulk and not self._closed:
                    self.follow()

    def follow(self, written: int = 0, *, at_once: bool = False) -> None:
        """Bring both level with the record, to which `written` chunks were added. Needs the write lock.

        The write already stands, whatever happens here.

        Raises:
            CorpusError: BM25 cannot follow; says when it will.
        """
        self._unfollowed += written
        if self._bulk and self._unfollowed < _BULK_CHUNKS and not at_once:
            return
        self._unfollowed = 0
        try:
            self.lexical.catch_up()
        except IndexUnreachable as error:
            raise CorpusError(
                f"the write is safe in the record, but the BM25 index does not answer ({error}): it follows with the "
                "next write, or when the collection is next opened"
            ) from error
        except Exception as error:
            logger.warning("BM25 index could not be updated (%s); rebuilding it", error)
            try:
                self.lexical.rebuild()
            except Exception as failure:
                raise CorpusError(
                    f"the write is safe in the record, but the BM25 index cannot be updated ({failure}): "
                    "open the collection again, or run `thresher rebuild`"
                ) from failure
        self.dense.catch_up()
        self.save_progress()

    @property
    def faults(self) -> tuple[str, ...]:
        """Which of the two are out of order now, and why."""
        found = (("lexical", self.lexical.progress.fault), ("dense", self.dense.fault))
        return tuple(f"{name}: {fault}" for name, fault in found if fault)

    def save_progress(self) -> None:
        """Write down how far each index has come."""
        with self._store.write() as connection:
            save_progress(connection, "lexical", self.lexical.progress)
            save_progress(connection, "dense", self.dense.progress)

    def rebuild(self) -> Mapping[str, int]:
        """Build every derived index anew, the trigrams in the record too; returns the new generations."""
        with self._writing:
            with self._store.write() as connection:
                rebuild_trigrams(connection)
            self.lexical.rebuild()
        self.dense.rebuild()
        return {"lexical": self.lexical.progress.generation, "dense": self.dense.progress.generation}

    def wait_for_repair(self, timeout_s: float | None = None) -> bool:
        """Wait for rebuilds that run in the background; whether the dense index is in order then."""
        self.lexical.wait_for_repair(timeout_s)
        return self.dense.wait_for_repair(timeout_s)

    def interrupt(self) -> None:
        """Break off a rebuild that someone is waiting for: the collection is being closed."""
        self.lexical.interrupt()
        self.dense.interrupt()

    def close(self) -> None:
        """Stop repairs and release both indexes."""
        self._closed = True
        self.dense.close()
        self.lexical.close()
