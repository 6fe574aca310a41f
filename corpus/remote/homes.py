"""Where the generations of a collection live on a distributed Chroma: one remote collection a generation and kind."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from thresher.corpus.documents import Vectors
from thresher.corpus.lexical.base import LexicalHome, LexicalIndex
from thresher.corpus.lexical.local import LocalLexicalHome
from thresher.corpus.record.documents import load_vectors, vectors_of
from thresher.corpus.record.store import Store
from thresher.corpus.remote.address import Address
from thresher.corpus.remote.database import RemoteCollection, RemoteDatabase
from thresher.corpus.remote.dense import RemoteVectors
from thresher.corpus.remote.errors import RemoteError
from thresher.corpus.remote.features import Features, probe
from thresher.corpus.remote.passages import SPARSE_KEY, RemotePassages, VectorsOf
from thresher.corpus.remote.sparse import Lengths
from thresher.corpus.vectors.base import IndexDamaged, OpenIndex

logger = logging.getLogger(__name__)

_ASIDE = "-aside-"

Connect = Callable[[Address], RemoteDatabase]


class RemoteServer:
    """A connection that is made, and its features tried, when something first needs it."""

    def __init__(self, address: Address, connect: Connect = RemoteDatabase) -> None:
        self.address = address
        self._connect = connect
        self._guard = threading.RLock()
        self._database: RemoteDatabase | None = None
        self._features: Features | None = None
        self._closed = False

    def database(self) -> RemoteDatabase:
        """The connection."""
        with self._guard:
            if self._closed:
                raise RemoteError("the remote index is closed; open the collection again")
            if self._database is None:
                self._database = self._connect(self.address)
            return self._database

    def features(self) -> Features:
        """What the server can do."""
        with self._guard:
            if self._features is None:
                self._features = probe(self.database())
            return self._features

    def close(self) -> None:
        """End what is under way and disconnect."""
        self._closed = True
        if self._database is not None:
            self._database.close()


class _Generations:
    """The remote collections `thresher-ID-KIND-N`. The id is of one collection of ours and of no other."""

    def __init__(self, server: RemoteServer, collection_id: str, kind: str) -> None:
        self._server = server
        self._prefix = f"thresher-{re.sub(r'[^a-zA-Z0-9._-]', '-', collection_id)[:80]}-{kind}-"

    def name(self, generation: int) -> str:
        return f"{self._prefix}{generation}"

    def set_aside(self, generation: int) -> str | None:
        collection = self._server.database().open(self.name(generation))
        if collection is None:
            return None
        aside = f"{self.name(generation)}{_ASIDE}{time.time_ns() // 1_000_000}"
        collection.rename(aside)
        return aside

    def keep_only(self, generation: int, *, aside: bool) -> None:
        for name in self._server.database().names(self._prefix):
            if name != self.name(generation) and not (aside and _ASIDE in name):
                self._server.database().delete(name)


class CloudHome:
    """An `IndexHome` of vectors collections."""

    def __init__(self, server: RemoteServer, collection_id: str, left: Path | None = None) -> None:
        """`left` is the directory of a dense index on this machine, which is given up once the remote one is in use."""
        self._server = server
        self._generations = _Generations(server, collection_id, "vectors")
        self._left = left

    @property
    def identity(self) -> str:
        """See `IndexHome`."""
        return f"cloud {self._server.address.identity}"

    def open(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        collection = self._server.database().open(self._generations.name(generation))
        if collection is None:
            raise IndexDamaged(f"the Chroma server has no collection {self._generations.name(generation)}")
        return self._index(collection)

    def left_open(self, generation: int) -> bool:
        """See `IndexHome`: a server's collection outlives its owner."""
        return False

    def fresh(self, generation: int) -> OpenIndex:
        """See `IndexHome`."""
        name = self._generations.name(generation)
        self._server.database().delete(name)
        return self._index(self._server.database().create(name))

    def quarantine(self, generation: int) -> str | None:
        """See `IndexHome`."""
        aside = self._generations.set_aside(generation)
        return f"the collection {aside} of {self._server.address.url}" if aside else None

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """See `IndexHome`."""
        self._generations.keep_only(generation, aside=quarantined)
        if self._left is not None:
            shutil.rmtree(self._left, ignore_errors=True)

    def on_lost(self, notify: Callable[[str], None]) -> None:
        """See `IndexHome`: a lost connection shows at the next request, and the one after may find it again."""

    def close(self) -> None:
        """See `IndexHome`."""
        self._server.close()

    def _index(self, collection: RemoteCollection) -> RemoteVectors:
        return RemoteVectors(collection, search_api=lambda: self._server.features().search)


class CloudLexicalHome:
    """A `LexicalHome` of passages collections; of tantivy directories where the server has no sparse vectors."""

    def __init__(
        self,
        server: RemoteServer,
        collection_id: str,
        root: Path,
        *,
        vectors_of: VectorsOf | None = None,
        made_by: str = "",
    ) -> None:
        """`root` is the directory for tantivy.

        Args:
            vectors_of: where the vectors of chunks come from.
            made_by: names what made them; with other vectors the index is another one.
        """
        self._server = server
        self._generations = _Generations(server, collection_id, "passages")
        self._local = LocalLexicalHome(root)
        self._vectors_of = vectors_of
        self._made_by = made_by
        self._warned = False

    @property
    def identity(self) -> str:
        """See `LexicalHome`. Asks the server for its features the first time."""
        if (local := self._fallback()) is not None:
            return local.identity
        return f"cloud {self._server.address.identity} {self._made_by}".rstrip()

    def open(self, generation: int) -> LexicalIndex:
        """See `LexicalHome`."""
        if (local := self._fallback()) is not None:
            return local.open(generation)
        name = self._generations.name(generation)
        return self._index(name, self._server.database().open(name, sparse=SPARSE_KEY))

    def fresh(self, generation: int) -> LexicalIndex:
        """See `LexicalHome`."""
        if (local := self._fallback()) is not None:
            return local.fresh(generation)
        name = self._generations.name(generation)
        self._server.database().delete(name)
        return self._index(name, None)

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """See `LexicalHome`."""
        if self._fallback() is not None:
            self._local.keep_only(generation, quarantined=quarantined)
            return
        self._generations.keep_only(generation, aside=quarantined)
        # What tantivy held before is of no use here, and may hold text that is to be erased.
        self._local.keep_only(-1, quarantined=False)

    def close(self) -> None:
        """See `LexicalHome`."""
        self._server.close()

    def _fallback(self) -> LexicalHome | None:
        features = self._server.features()
        if features.sparse:
            return None
        if not self._warned:
            self._warned = True
            logger.warning(
                "the Chroma server at %s has no sparse vectors (%s): BM25 stays on this machine",
                self._server.address.url,
                "; ".join(features.missing) or "it stored one and did not find it",
            )
        return self._local

    def _index(self, name: str, collection: RemoteCollection | None) -> RemotePassages:
        def create(lengths: Lengths) -> RemoteCollection:
            notes: Mapping[str, float] = asdict(lengths)
            return self._server.database().create(name, sparse=SPARSE_KEY, notes=notes)

        return RemotePassages(collection, create, self._vectors_of)


def recorded_vectors(store: Store, dimension: int) -> VectorsOf:
    """Chunks' vectors as the record has them."""

    def look_up(chunk_ids: Sequence[int]) -> dict[int, Vectors]:
        with store.read() as connection:
            pairs = vectors_of(connection, chunk_ids)
            ids, rows = load_vectors(connection, sorted({vector_id for vector_id, _ in pairs}), dimension)
        place = {vector_id: row for row, vector_id in enumerate(ids)}
        return {chunk_id: rows[place[vector_id]] for vector_id, chunk_id in pairs}

    return look_up
