"""Opening collections as the settings say: the one place where a face makes `Collection` objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.backends import IN_PROCESS, load_backends
from thresher.corpus.errors import CollectionNotFound
from thresher.corpus.paths import collection_path, is_collection, list_collections

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection


def require_collection(name: str) -> Path:
    """The directory of a collection that exists.

    Raises:
        CollectionNotFound: there is none; the message lists those that there are.
    """
    path = collection_path(name)
    if not is_collection(path):
        known = list_collections(name.rpartition("/")[0])
        hint = f"the known ones are {', '.join(known)}" if known else "there is none yet"
        raise CollectionNotFound(f"there is no collection {name!r}: {hint}; `thresher ingest -c {name} PATH` makes one")
    return path


@dataclass(frozen=True, slots=True)
class Making:
    """What a collection is to be made with, and what one that exists must have been made with.

    Attributes:
        embedder, chunker: specs that are asked for; None takes what the collection has.
        default_embedder, default_chunker: specs for a collection that is made without being asked for others.
    """

    embedder: str | None
    chunker: str | None
    default_embedder: str
    default_chunker: str

    def check(self, collection: Collection) -> None:
        """Make sure that an open collection is what is asked for.

        Raises:
            CollectionMismatch: it was made with another embedder or chunker; has the command to change it.
        """
        from thresher.corpus.embedders import load_embedder

        manifest = collection.manifest
        if self.embedder and self.embedder != manifest.embedder.spec:
            manifest.check_embedder(load_embedder(self.embedder).info, collection.path)
        if self.chunker:
            manifest.check_chunker(self.chunker, collection.path)


@dataclass(frozen=True, slots=True)
class Opener:
    """How this process opens collections. `chroma`: where their dense indexes live, a spec of `load_backends`."""

    chroma: str = IN_PROCESS

    def open(self, path: Path) -> Collection:
        """Open a collection that exists; see `Collection.open` for errors."""
        from thresher.corpus.collection import Collection

        return Collection.open(path, backends=load_backends(self.chroma))

    def open_or_create(self, path: Path, making: Making) -> Collection:
        """Open a collection to write to, made if need be.

        Raises:
            CollectionMismatch: it exists, with another embedder or chunker than is asked for.
        """
        from thresher.corpus.collection import Collection
        from thresher.corpus.embedders import load_embedder

        if not is_collection(path):
            chunker = making.chunker or making.default_chunker
            embedder = load_embedder(making.embedder or making.default_embedder)
            return Collection.create(path, embedder, chunker=chunker, backends=load_backends(self.chroma))
        collection = self.open(path)
        try:
            making.check(collection)
        except BaseException:
            collection.close()
            raise
        return collection
