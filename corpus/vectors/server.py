"""The dense index on a Chroma server: one collection there per generation, named after the collection's unique id."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.vectors.base import IndexDamaged, OpenIndex
from thresher.corpus.vectors.rows import CONFIGURATION, ChromaRows
from thresher.corpus.vectors.wire import ChromaServer, Patience, parse_address

PATIENCE = Patience()
_QUARANTINED = "quarantined"


class ServerIndex(ChromaRows):
    """An `OpenIndex` on a server. It outlives its owner, who has nothing to end in order."""

    was_unclean = False

    def close(self) -> None:
        """See `VectorIndex`."""

    def abandon(self) -> None:
        """See `OpenIndex`."""


class ServerHome:
    """An `IndexHome` on a Chroma server."""

    def __init__(self, url: str, collection_id: str, left: Path | None = None) -> None:
        """`url` as for `parse_address`; `collection_id` tells this collection from all others there.

        `left` is where a local index of the collection may be, to be removed once this one is in use.
        """
        self._address = parse_address(url)
        self._server = ChromaServer(self._address, PATIENCE)
        self._prefix = f"thresher-{collection_id}-"
        self._left = left
        self._closed = False

    @property
    def identity(self) -> str:
        """See `IndexHome`. Without credentials, which may change."""
        return f"{self._address.base}/{self._address.tenant}/{self._address.database}/{self._prefix}"

    def open(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        found = self._ask().collection(self._name(generation))
        if found is None:
            raise IndexDamaged(f"the Chroma server at {self._address} has no collection {self._name(generation)}")
        return ServerIndex(found, max_batch=self._server.max_batch())

    def left_open(self, generation: int) -> bool:
        """See `IndexHome`: a server's collection outlives its owner."""
        return False

    def fresh(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        name = self._name(generation)
        self._ask().delete(name)
        return ServerIndex(self._server.create(name, CONFIGURATION), max_batch=self._server.max_batch())

    def quarantine(self, generation: int) -> str | None:
        """See `IndexHome`."""
        found = self._ask().collection(self._name(generation))
        if found is None:
            return None
        aside = f"{self._name(generation)}-{_QUARANTINED}-{time.time_ns() // 1_000_000}"
        found.rename(aside)
        return f"collection {aside} of {self._address}"

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """See `IndexHome`."""
        for name in self._ask().names():
            own = name.startswith(self._prefix) and name != self._name(generation)
            if own and not (quarantined and f"-{_QUARANTINED}-" in name):
                self._server.delete(name)
        if self._left is not None:
            shutil.rmtree(self._left, ignore_errors=True)

    def on_lost(self, notify: Callable[[str], None]) -> None:
        """See `IndexHome`: nobody watches a server; the next request tells."""

    def close(self) -> None:
        """See `IndexHome`."""
        self._closed = True
        self._server.close()

    def _ask(self) -> ChromaServer:
        if self._closed:
            raise IndexUnreachable("the collection is closed")
        self._server.beat()  # a 404 from something else is no lost collection
        return self._server

    def _name(self, generation: int) -> str:
        return f"{self._prefix}{generation}"
