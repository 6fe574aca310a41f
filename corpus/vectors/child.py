"""The dense index in the collection's own directory, run by a supervised Chroma child process.

Whatever the engine does on a damaged file (crash, hang, take all memory), it does to the child. When it dies, searches
are exact until it was started again on the same directory; when it dies time and again, the directory is at fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.vectors.base import OpenIndex
from thresher.corpus.vectors.chroma import COLLECTION, ProbeResult, require_found
from thresher.corpus.vectors.claim import Claim
from thresher.corpus.vectors.files import ChromaUnusable, check_files, check_save
from thresher.corpus.vectors.local import LocalHome
from thresher.corpus.vectors.process import ChildDied, ChildProcess
from thresher.corpus.vectors.rows import CONFIGURATION, ChromaRows
from thresher.corpus.vectors.scrub import scrub_unused
from thresher.corpus.vectors.wire import Address, ChromaServer, HangingServer, Patience, ServerCollection

_DEATHS = 3
_QUICK_SECONDS = 60.0
_SAMPLE = 32
PATIENCE = Patience(connect=2.0, answer=10.0, change=120.0)


class ChildIndex(ChromaRows):
    """An `OpenIndex` on a local directory that a child process serves."""

    def __init__(
        self, directory: Path, *, on_exit: Callable[[str], None], interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Check the directory, start the child, and have it load the index.

        Raises:
            ChromaUnusable: the directory is damaged.
            ChildDied: the child ended or hung on it.
            IndexUnreachable: it could not be started.
        """
        self._claim = Claim(directory)
        self._directory = directory
        self._process: ChildProcess | None = None
        self._server: ChromaServer | None = None
        self._since = time.monotonic()
        try:
            self.was_unclean = self._claim.was_unclean and directory.exists()
            check_files(directory)
            if self.was_unclean:
                check_save(directory)
            directory.mkdir(parents=True, exist_ok=True)
            self._process = ChildProcess(directory, self._claim, on_exit=on_exit, interrupted=interrupted)
            self._server = ChromaServer(Address(f"http://127.0.0.1:{self._process.port}"), PATIENCE)
            super().__init__(
                _Watched(self._server.create(COLLECTION, CONFIGURATION), self._process),
                max_batch=self._server.max_batch(),
            )
            self._collection.get(limit=1, include=["embeddings"])  # loads the graph, with the patience of a change
            if self.was_unclean:
                require_found(directory, ProbeResult(*self.find_themselves(_SAMPLE)))
        except BaseException:
            self.abandon()
            raise

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return time.monotonic() - self._since

    def close(self) -> None:
        """See `VectorIndex`."""
        self._end(gently=True)

    def abandon(self) -> None:
        """See `OpenIndex`."""
        with suppress(Exception):
            self._end(gently=False)

    def _end(self, *, gently: bool) -> None:
        if self._server is not None:
            self._server.close()
        clean = False
        if self._process is not None:
            # Even when it is given up, a child that is well leaves a sound directory if it may end by itself.
            clean = self._process.stop()
        if clean and gently:
            scrub_unused(self._directory)
        self._claim.release(clean=clean and gently)


class _Watched:
    """A collection whose server is ended when it hangs."""

    def __init__(self, collection: ServerCollection, process: ChildProcess) -> None:
        self._collection = collection
        self._process = process

    def add(self, *, ids: list[str], embeddings: Vectors) -> None:
        with self._ended_if_it_hangs():
            self._collection.add(ids=ids, embeddings=embeddings)

    def delete(self, *, ids: list[str]) -> None:
        with self._ended_if_it_hangs():
            self._collection.delete(ids=ids)

    def get(self, **what: Any) -> dict[str, Any]:
        with self._ended_if_it_hangs():
            return self._collection.get(**what)

    def query(self, **what: Any) -> dict[str, Any]:
        with self._ended_if_it_hangs():
            return self._collection.query(**what)

    def count(self) -> int:
        with self._ended_if_it_hangs():
            return self._collection.count()

    @contextmanager
    def _ended_if_it_hangs(self) -> Iterator[None]:
        try:
            yield
        except HangingServer as error:
            self._process.kill()
            raise ChildDied(f"the Chroma child hung and was ended ({error})") from error


class ChildHome(LocalHome):
    """An `IndexHome` of numbered directories, each opened by a child process."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._notify: Callable[[str], None] = lambda why: None
        self._closed = False
        self._deaths = 0
        self._dying: int | None = None
        self._last: ChildIndex | None = None

    def fresh(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        self._dying = None  # an empty directory is not what a child dies of
        return super().fresh(generation)

    def on_lost(self, notify: Callable[[str], None]) -> None:
        """See `IndexHome`: called when a child ends by itself."""
        self._notify = notify

    def close(self) -> None:
        """See `IndexHome`."""
        self._closed = True

    def _opened(self, directory: Path, generation: int) -> OpenIndex:
        if self._closed:
            raise IndexUnreachable("the collection is closed")
        self._count_death(generation)
        if self._deaths >= _DEATHS:
            deaths, self._deaths = self._deaths, 0
            raise ChromaUnusable(f"the Chroma child ended {deaths} times in a row on {directory}")
        try:
            index = ChildIndex(directory, on_exit=self._notify, interrupted=lambda: self._closed)
        except ChildDied:
            self._deaths += 1
            raise
        self._last = index
        return index

    def _count_death(self, generation: int) -> None:
        """Take note if the child before this one ended soon, on the same generation."""
        last, self._last = self._last, None
        if generation != self._dying:
            self._dying, self._deaths = generation, 0
        elif last is not None:
            self._deaths = self._deaths + 1 if last.seconds < _QUICK_SECONDS else 0
