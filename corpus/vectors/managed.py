"""The dense index of a collection: Chroma kept level with the record, exact search where it is better or needed.

The indexes hold each distinct vector once; what they find is expanded to the chunks that have it.

Exact search answers while the collection is small (it is then as fast as HNSW, and right), inside filtered sets, and
whenever Chroma is out of order. Until a collection has outgrown it there is no Chroma index at all: the record is what
exact search reads. The write that crosses the line has one built in the background, and from then on it is followed.

Out of order means one of two things, and `Recovery` mends both in the background:
- a fault: the generation is damaged or lost, so another is built from the record. It is written into the record.
- away: what runs the index does not answer (a server that is down, a child that died), or its last owner was killed and
  it must be checked first. Writes stand in the record, and the index, if it is whole when it is back, only gets what it
  lacks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

from thresher.corpus.access import building, is_full
from thresher.corpus.documents import Vectors
from thresher.corpus.errors import CollectionClosed, IndexUnreachable
from thresher.corpus.record.documents import chunk_count, chunks_of, vectors_of
from thresher.corpus.record.oplog import Progress, last_seq, load_progress, save_progress
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.base import IndexHome, OpenIndex
from thresher.corpus.vectors.following import Follower
from thresher.corpus.vectors.recovery import Recovery, Stopped
from thresher.corpus.vectors.residence import NAME, settle
from thresher.corpus.vectors.standby import Standby

logger = logging.getLogger(__name__)

EXACT_BELOW = 5_000
"""Collections with fewer chunks than this are searched exactly."""

BUILT_AT_ONCE = 1_000
"""A first index of no more chunks than this is built by whoever needs it, in about a second; others beside searches."""

CHECKED_ASIDE = 20_000
"""An index of at least so many chunks that was left open is checked in the background: it takes about a minute for a
million chunks. A smaller one is checked when it is first needed, in about three seconds."""


class ManagedDense:
    """Owner of the Chroma generation and of the exact index. `writing` is the collection's write lock."""

    def __init__(
        self,
        store: Store,
        home: IndexHome,
        dimension: int,
        writing: threading.RLock,
        *,
        exact_below: int = EXACT_BELOW,
    ) -> None:
        self._store = store
        self._home = home
        self._writing = writing
        self._exact_below = exact_below
        self._follower = Follower(store, dimension)
        self._chroma: OpenIndex | None = None
        self._away: str | None = None
        self._checking = False
        self._standby = Standby(store, self._follower, dimension)
        self._recovery = Recovery(self._recover, lambda: bool(self.fault or self._unbuilt))
        self._closed = False
        settle(store, home.identity)
        with store.read() as connection:
            self.progress = load_progress(connection, NAME)
            self.chunks = chunk_count(connection)
        home.on_lost(self._lost)
        if self.progress.fault:
            self._recovery.start()

    @property
    def backend(self) -> tuple[Literal["chroma", "exact"], str]:
        """(`chroma` or `exact`, why)."""
        if self.progress.fault:
            return "exact", f"the Chroma index is being rebuilt: {self.progress.fault}"
        if self._away and self._checking:
            return "exact", f"the Chroma index is being checked: {self._away}"
        if self._away:
            return "exact", f"the Chroma index does not answer and is tried again: {self._away}"
        if self.chunks < self._exact_below:
            return "exact", f"fewer than {self._exact_below} chunks"
        if self._unbuilt:
            return "exact", "the Chroma index is being built"
        return "chroma", f"{self._exact_below} chunks or more"

    @property
    def fault(self) -> str | None:
        """What is out of order, if anything is."""
        return self.progress.fault or self._away

    @property
    def _unneeded(self) -> bool:
        """Whether the collection has not outgrown exact search, so that there is nothing to follow."""
        return not self.progress.generation and self.chunks < self._exact_below

    @property
    def _unbuilt(self) -> bool:
        """Whether a first index is to be built in the background."""
        return not self.progress.generation and self.chunks >= max(self._exact_below, BUILT_AT_ONCE + 1)

    def catch_up(self, *, in_place: bool = False) -> None:
        """Bring Chroma level with the record; `progress` then says so, and the caller saves it.

        Needs the write lock. A Chroma that cannot follow is put aside, or left alone while it does not answer or is
        being checked (`in_place` waits for the check, and for a first index to be built): the write itself stands.
        """
        with self._store.read() as connection:
            self.chunks, seq = chunk_count(connection), last_seq(connection)
        if self.fault:
            return
        if self._unneeded:
            # Said to have followed, so that the record may forget removals; a first index is built from what is live.
            self.progress = Progress(0, seq, None)
            return
        if self._unbuilt and not in_place:
            # What is noted stays where it is: removals from now on are kept for the index that is being built.
            return self._recovery.start()
        if not in_place and self._must_be_checked():
            self._checking = True
            return self._leave("its last owner did not close it")
        try:
            self.progress = self._follower.replay(self._open(), self.progress)
        except Exception as error:
            self._fail("it could not be updated", error)

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
            return _expand(self._standby.level().search_within(vector, vector_ids, k), pairs, k)
        return _expand(self._standby.search_stored(vector, vector_ids, k), pairs, k)

    def warm(self) -> None:
        """Open Chroma now, or begin to build it, so that no search waits for that."""
        if self._unbuilt:
            self._recovery.start()
        elif self.backend[0] == "chroma":
            self._ready()

    def rebuild(self) -> None:
        """Build a new generation from the stored vectors, switch to it, remove all others. None where none is needed.

        Raises:
            IndexUnreachable: what runs the index does not answer; nothing was changed.
            StorageFull, CorpusError: it could not be built; nothing was changed.
        """
        self._recovery.pause()
        try:
            with self._writing, building("Chroma"):
                self._check_open()
                self.catch_up()
                if self._unneeded:
                    return self._home.keep_only(0, quarantined=False)
                self._switch(*self._build(self._check_open))
                self._home.keep_only(self.progress.generation, quarantined=False)
        finally:
            if self.fault:
                self._recovery.start()

    def problems(self) -> list[str]:
        """What differs from the record's vectors. Needs the write lock."""
        if self._checking:  # what is asked for is the result of a check
            self._recovery.pause()
            self._away, self._checking = None, False
        if self._unbuilt:
            self._recovery.pause()
        if self.progress.fault is None:
            self.catch_up(in_place=True)
        if self._unneeded:
            return []
        if self.progress.fault:
            return [f"Chroma index is out of use, exact search serves: {self.progress.fault}; run `thresher rebuild`"]
        try:
            if self._away is None:
                return self._follower.problems(self._open())
        except IndexUnreachable as error:
            self._leave(str(error))
        return [f"Chroma index does not answer, exact search serves: {self._away}"]

    def wait_for_repair(self, timeout_s: float | None = None) -> bool:
        """Wait until a running repair ends; whether Chroma is in order then."""
        self._recovery.wait(timeout_s)
        return self.fault is None

    def rest(self) -> None:
        """Close Chroma until something needs it. Needs the write lock."""
        index, self._chroma = self._chroma, None
        if index is not None:
            index.close()

    def interrupt(self) -> None:
        """Break off a rebuild that someone is waiting for: the collection is being closed."""
        self._closed = True

    def close(self) -> None:
        """Stop a repair and close Chroma."""
        self._closed = True
        self._home.close()
        self._recovery.end()
        with self._writing:
            if self._chroma is not None:
                self._chroma.close()
                self._chroma = None

    def _nearest(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """The k nearest (vector id, cosine similarity)."""
        while self.backend[0] == "chroma" and (index := self._ready()) is not None:
            try:
                return index.search(vector, k)
            except IndexUnreachable as error:
                if self._closed:
                    raise CollectionClosed("the collection is closed; open it again") from error
                # Not under the write lock: a writer may be waiting for the same server to answer.
                if self._chroma is index:
                    self._leave(str(error))
            except Exception as error:
                with self._writing:
                    # A generation that was replaced or closed under this search is not at fault.
                    if self._chroma is index:
                        self._quarantine(f"it could not answer ({error})")
        if self._unbuilt:
            self._recovery.start()
        return self._standby.level().search(vector, k)

    def _ready(self) -> OpenIndex | None:
        """Chroma, open and level with what was applied; None while it is out of order."""
        if self._chroma is None:
            with self._writing:
                self._check_open()
                self.catch_up()
                with self._store.write() as connection:
                    save_progress(connection, NAME, self.progress)
        return self._chroma

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionClosed("the collection is closed; open it again")

    def _open(self) -> OpenIndex:
        """Chroma, opened if it was not, and made to hold what the record does. Needs the write lock."""
        if self._chroma is None:
            self._adopt(self._opened())
            with suppress(Exception):  # leftovers are no reason not to search
                self._home.keep_only(self.progress.generation, quarantined=True)
        assert self._chroma is not None
        return self._chroma

    def _opened(self) -> OpenIndex:
        if self.progress.generation:
            return self._home.open(self.progress.generation)
        index = self._home.fresh(1)
        self.progress = Progress(1, 0, None)
        return index

    def _adopt(self, index: OpenIndex) -> None:
        """Use a generation that was just opened. Needs the write lock."""
        self._chroma = index
        self._follower.disown(index, self.progress)
        self.progress = self._follower.replay(index, self.progress)
        self._follower.reconcile(index, was_unclean=index.was_unclean)

    def _fail(self, what: str, error: Exception) -> None:
        if _will_pass(error):
            self._leave(str(error))
        else:
            self._quarantine(f"{what} ({error})")

    def _leave(self, why: str) -> None:
        """Search exactly until what runs the index answers again."""
        self._away = why
        self._recovery.start()

    def _lost(self, why: str) -> None:
        if self._chroma is not None and not self._closed:
            self._leave(why)

    def _quarantine(self, why: str) -> None:
        """Give a generation up and have another built. Needs the write lock."""
        if self.progress.fault:
            return
        self._abandon()
        aside = None
        with suppress(Exception):  # what cannot be moved is not opened again either: the next one has another number
            aside = self._home.quarantine(self.progress.generation)
        fault = f"{why}; moved to {aside}" if aside else why
        logger.warning("Chroma index put aside, exact search serves meanwhile: %s", fault)
        self.progress = Progress(self.progress.generation, 0, fault)
        with self._store.write() as connection:
            save_progress(connection, NAME, self.progress)
        self._recovery.start()

    def _abandon(self) -> None:
        if self._chroma is not None:
            self._chroma.abandon()
            self._chroma = None

    def _recover(self) -> None:
        """One attempt of the background thread."""
        if self.progress.fault:
            self._replace()
        elif self._unbuilt:
            try:
                self._replace()
            except (Stopped, IndexUnreachable):
                raise
            except Exception as error:
                if _will_pass(error):
                    raise IndexUnreachable(str(error)) from error
                with self._recovery.holding(self._writing):
                    self._quarantine(f"it could not be built ({error})")
        elif self._away:
            self._return()
        if self.backend[0] == "chroma":
            self._standby.release()

    def _replace(self) -> None:
        """Build a generation and switch to it, without the write lock until it is level."""
        index, progress = self._build(self._recovery.check)
        try:
            with self._recovery.holding(self._writing):
                self._switch(index, progress)
        except BaseException:
            index.abandon()
            raise
        with suppress(IndexUnreachable):
            self._home.keep_only(self.progress.generation, quarantined=True)
        logger.info("Chroma index built as generation %d", self.progress.generation)

    def _must_be_checked(self) -> bool:
        return (
            self._chroma is None
            and self.chunks >= max(CHECKED_ASIDE, self._exact_below)
            and self.progress.generation > 0
            and self._home.left_open(self.progress.generation)
        )

    def _return(self) -> None:
        """Open a generation again whose server or child did not answer, or whose last owner was killed."""
        with self._recovery.holding(self._writing):
            self._abandon()
        failure: Exception | None = None
        index: OpenIndex | None = None
        progress = self.progress
        try:
            try:
                index = self._opened()  # without the lock: it may take long, and so may the first levelling
                self._follower.disown(index, self.progress)
                progress = self._follower.replay(index, self.progress)
                self._follower.reconcile(index, was_unclean=index.was_unclean)
            except IndexUnreachable:
                raise
            except Exception as error:
                failure = error
            with self._recovery.holding(self._writing):
                if index is not None and failure is None:
                    try:
                        self._take_back(index, progress)
                    except Exception as error:
                        failure = error
                if failure is not None and index is not None and _will_pass(failure):
                    raise IndexUnreachable(str(failure)) from failure
                if failure is not None:
                    self._chroma = index
                    self._quarantine(f"it could not be opened again ({failure})")
                self._away, self._checking = None, False
        except BaseException:
            if index is not None:
                if self._chroma is index:
                    self._chroma = None
                index.abandon()
            raise
        if failure is None:
            logger.info("the Chroma index is back, level with the record")

    def _take_back(self, index: OpenIndex, progress: Progress) -> None:
        """Use a generation that was levelled without the write lock. Needs it now."""
        progress = self._follower.replay(index, progress)
        self._follower.reconcile(index, was_unclean=False)
        with self._store.write() as connection:
            save_progress(connection, NAME, progress)
        self._chroma, self.progress = index, progress
        with suppress(Exception):
            self._home.keep_only(progress.generation, quarantined=True)

    def _build(self, check: Callable[[], None] = lambda: None) -> tuple[OpenIndex, Progress]:
        generation = self.progress.generation + 1
        index = self._home.fresh(generation)
        try:
            with self._store.read() as connection:
                seq = last_seq(connection)
                for ids, rows in self._follower.pages(connection, 0):
                    check()
                    index.apply(add=ids, vectors=rows, remove=[])
        except BaseException:
            index.abandon()
            raise
        return index, Progress(generation, seq, None)

    def _switch(self, index: OpenIndex, progress: Progress) -> None:
        """Use a generation that was just built. Needs the write lock."""
        progress = self._follower.replay(index, progress)
        with self._store.write() as connection:
            save_progress(connection, NAME, progress)
        old, self._chroma, self.progress, self._away = self._chroma, index, progress, None
        self._checking = False
        if old is not None:
            with suppress(Exception):
                old.close()


def _will_pass(error: Exception) -> bool:
    """Whether the index is not at fault: what runs it does not answer, or the disk is full."""
    return isinstance(error, IndexUnreachable) or is_full(error)


def _expand(found: list[tuple[int, float]], pairs: list[tuple[int, int]], k: int) -> list[tuple[int, float]]:
    """From (vector id, similarity) to the k best (chunk id, similarity), by way of (vector id, chunk id) pairs."""
    similarity = dict(found)
    hits = [(chunk_id, similarity[vector_id]) for vector_id, chunk_id in pairs if vector_id in similarity]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]
