"""Where the derived indexes of a collection live, as one setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CorpusError
from thresher.corpus.lexical.base import LexicalHome
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.base import IndexHome

IN_PROCESS = "in-process"
CHILD = "child"
CLOUD = "cloud"

_SPECS = (
    f"`{IN_PROCESS}` (Chroma inside this process), `{CHILD}` (Chroma in a supervised child process), "
    "`http://HOST:PORT` or `https://…` (a Chroma server), "
    f"`{CLOUD}` (Chroma Cloud) or `{CLOUD}:https://HOST` (a distributed Chroma)"
)


class DenseBackend(Protocol):
    """Makes the place where one collection's dense index lives. Opens and connects nothing yet."""

    def home(self, root: Path, collection_id: str) -> IndexHome:
        """The place for the collection with this unique id, whose own directory for Chroma is `root`."""


class LexicalBackend(Protocol):
    """Makes the place where one collection's lexical index lives. Opens and connects nothing yet."""

    def home(self, root: Path, store: Store, embedder: EmbedderInfo) -> LexicalHome:
        """The place for the collection with this record, whose own directory for tantivy is `root`."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """Chroma in this process, on the collection's own directory."""

    def home(self, root: Path, collection_id: str) -> IndexHome:
        """See `DenseBackend`."""
        from thresher.corpus.vectors.local import LocalHome

        return LocalHome(root)


@dataclass(frozen=True, slots=True)
class Child:
    """Chroma in a child process that is watched and restarted, on the same directory as `InProcess`."""

    def home(self, root: Path, collection_id: str) -> IndexHome:
        """See `DenseBackend`."""
        from thresher.corpus.vectors.child import ChildHome

        return ChildHome(root)


@dataclass(frozen=True, slots=True)
class Server:
    """A Chroma server. `url` may carry a user and password, and `?tenant=…&database=…`."""

    url: str

    def home(self, root: Path, collection_id: str) -> IndexHome:
        """See `DenseBackend`."""
        from thresher.corpus.vectors.server import ServerHome

        return ServerHome(self.url, collection_id, root)


@dataclass(frozen=True, slots=True)
class Cloud:
    """Chroma Cloud, or the distributed Chroma at `url`. Credentials come from the environment."""

    url: str | None = None

    def home(self, root: Path, collection_id: str) -> IndexHome:
        """See `DenseBackend`."""
        from thresher.corpus.remote.address import cloud_address
        from thresher.corpus.remote.homes import CloudHome, RemoteServer

        return CloudHome(RemoteServer(cloud_address(self.url)), collection_id, root)


@dataclass(frozen=True, slots=True)
class Tantivy:
    """tantivy in this process, on the collection's own directory."""

    def home(self, root: Path, store: Store, embedder: EmbedderInfo) -> LexicalHome:
        """See `LexicalBackend`."""
        from thresher.corpus.lexical.local import LocalLexicalHome

        return LocalLexicalHome(root)


@dataclass(frozen=True, slots=True)
class CloudLexical:
    """Sparse vectors on Chroma Cloud, or on the distributed Chroma at `url`; tantivy where it has none."""

    url: str | None = None

    def home(self, root: Path, store: Store, embedder: EmbedderInfo) -> LexicalHome:
        """See `LexicalBackend`."""
        from thresher.corpus.record.collection_id import collection_id
        from thresher.corpus.remote.address import cloud_address
        from thresher.corpus.remote.homes import CloudLexicalHome, RemoteServer, recorded_vectors

        return CloudLexicalHome(
            RemoteServer(cloud_address(self.url)),
            collection_id(store),
            root,
            vectors_of=recorded_vectors(store, embedder.dimension),
            made_by=f"{embedder.spec} {embedder.revision}",
        )


@dataclass(frozen=True, slots=True)
class Backends:
    """What a collection's derived indexes run on."""

    dense: DenseBackend = field(default_factory=InProcess)
    lexical: LexicalBackend = field(default_factory=Tantivy)


DEFAULT_BACKENDS = Backends()
"""Everything inside this process."""


def load_backends(spec: str) -> Backends:
    """The backends that a spec names: `in-process`, `child`, `http://host:port`, `https://…`, `cloud`, `cloud:https://…`.

    Raises:
        CorpusError: the spec names none, or what it needs is not set; says what.
    """
    if spec == IN_PROCESS:
        return DEFAULT_BACKENDS
    if spec == CHILD:
        return Backends(dense=Child())
    if spec == CLOUD or spec.startswith(f"{CLOUD}:"):
        from thresher.corpus.remote.address import cloud_address

        url = spec[len(CLOUD) + 1 :] or None
        cloud_address(url)
        return Backends(dense=Cloud(url), lexical=CloudLexical(url))
    if spec.startswith(("http://", "https://")):
        from thresher.corpus.vectors.wire import parse_address

        parse_address(spec)
        return Backends(dense=Server(spec))
    raise CorpusError(f"{spec!r} names no place for the dense index: use {_SPECS}")
