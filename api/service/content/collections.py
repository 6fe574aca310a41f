"""Collections as clients see, make and remove them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError, explain_to_client
from thresher.api.opening import Making, Opener
from thresher.corpus.backends import load_backends
from thresher.corpus.chunker import load_chunker
from thresher.corpus.errors import CorpusError
from thresher.corpus.glance import glance
from thresher.corpus.info import CollectionStats
from thresher.corpus.lifecycle.removal import remove_collection
from thresher.corpus.paths import collection_path, is_collection, list_collections

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.service.jobs.jobs import Jobs
    from thresher.api.service.principal import Principal
    from thresher.api.service.registry import Registry

logger = logging.getLogger("thresher.api")

BUILT_IN = ("minilm", "wordllama")
"""Embedders that come with the package, so that naming them reaches neither a path nor an address."""


class IndexModel(BaseModel):
    """How the indexes of a collection are. The record they are made from is never at stake."""

    model_config = ConfigDict(frozen=True)

    ready: bool = Field(description="They hold everything, and none of them is being rebuilt.")
    dense: Literal["chroma", "exact"] | None = Field(
        description="What answers dense queries now; null while nobody has the collection open."
    )
    pending: int | None = Field(description="Operations that some index still lacks; null as for `dense`.")
    faults: list[str] = Field(description="Indexes that are being rebuilt.")


class CollectionModel(BaseModel):
    """A collection. What cannot be told now is null; then `problem` says why."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "object": "collection",
                    "name": "harbour",
                    "documents": 3,
                    "chunks": 6,
                    "bytes": 1_540_096,
                    "embedder": "minilm",
                    "dimension": 384,
                    "chunker": "structure-1",
                    "created_at": 1764500000,
                    "index": {"ready": True, "dense": "exact", "pending": 0, "faults": []},
                    "sources": {"indexed": 3},
                    "problem": None,
                }
            ]
        },
    )

    object: Literal["collection"] = "collection"
    name: str
    documents: int | None = None
    chunks: int | None = Field(default=None, description="Passages; searches find these.")
    bytes: int | None = Field(default=None, description="Bytes on disk, all indexes included.")
    embedder: str | None = Field(default=None, description="What makes its vectors.")
    dimension: int | None = Field(default=None, description="Numbers in each vector.")
    chunker: str | None = Field(default=None, description="How texts are cut into passages.")
    created_at: int | None = Field(default=None, description="Seconds since 1970.")
    index: IndexModel | None = None
    sources: dict[str, int] | None = Field(
        default=None, description="How many files, pages and other sources have each status; null in lists."
    )
    problem: str | None = None


def known_embedders(settings: Settings) -> Mapping[str, str]:
    """The specs of the embedders that a client may ask for, by the names that clients see."""
    return {**{name: name for name in BUILT_IN}, shown_embedder(settings.embedder): settings.embedder}


def shown_embedder(spec: str) -> str:
    """An embedder's spec without the address or the path in it, which are the operator's."""
    kind, _, rest = spec.partition(":")
    if kind == "openai":
        return f"{kind}:{rest.partition('@')[0]}"
    if kind == "st" and (os.path.isabs(rest) or rest.startswith(("~", "."))):
        return f"{kind}:{os.path.basename(rest.rstrip('/'))}"
    return spec


class Collections:
    """The collections of a server. All of it waits, so it is for threads."""

    def __init__(self, settings: Settings, registry: Registry, jobs: Jobs) -> None:
        self._settings = settings
        self._registry = registry
        self._jobs = jobs
        self._chroma = settings.chroma_spec(serving=True)

    def page(self, caller: Principal, *, after: str | None, limit: int) -> tuple[list[CollectionModel], bool]:
        """The caller's collections by name, from the first past `after`; and whether there are more. Opens none."""
        names = [
            name
            for name in list_collections(caller.tenant)
            if self._registry.serves(caller.collection(name)) and name > (after or "")
        ]
        opened = self._registry.opened()
        return [self._seen(caller, name, opened) for name in names[:limit]], len(names) > limit

    def get(self, caller: Principal, name: str) -> CollectionModel:
        """A collection, opened for it.

        Raises:
            ApiError: 404, the caller has none of that name.
            CorpusError: it cannot be opened.
        """
        with self._registry.lease(caller.collection(name), "stats") as collection:
            return _shown(name, collection.stats(), collection.manifest.created)

    def create(self, caller: Principal, name: str, *, embedder: str | None, chunker: str | None) -> CollectionModel:
        """Make a collection.

        Raises:
            ApiError: 409, there is one of that name; 422, it cannot be called so, or the embedder is not to be had.
            UnknownChunker: there is no such chunker.
        """
        qualified = caller.collection(name)
        making = Making(
            self.embedder(embedder),
            None if chunker is None else load_chunker(chunker).version,
            self._settings.embedder,
            self._settings.chunker,
        )
        with self._registry.closed(qualified, "create") as path:
            if is_collection(path):
                message = f"there is already a collection {name!r}; choose another name, or use it"
                raise ApiError(409, "collection_exists", message, type="conflict_error", param="name")
            Opener(self._chroma).open_or_create(path, making).close()
        return self.get(caller, name)

    def embedder(self, name: str | None) -> str | None:
        """The spec of the embedder that a client calls so.

        Raises:
            ApiError: 422, clients may not ask for it, whether there is one or not.
        """
        if name is None:
            return None
        known = known_embedders(self._settings)
        if name not in known:
            message = f"embedder must be one of {', '.join(known)}, or be left out; others are for the operator to set"
            raise ApiError(422, "unknown_embedder", message, param="embedder")
        return known[name]

    def remove(self, caller: Principal, name: str) -> None:
        """Remove a collection with all that is in it.

        Raises:
            ApiError: 404, the caller has none of that name; 409, jobs or an operation on it have not ended.
            CorpusError: it cannot be removed now; nothing of it was.
        """
        qualified = caller.collection(name)
        self._registry.require(qualified)
        if count := self._jobs.unfinished(caller, name):
            message = f"{count} jobs on collection {name!r} have not ended: cancel them, or wait, before it is removed"
            raise ApiError(409, "collection_busy", message, type="conflict_error")
        with self._registry.task(qualified, "remove"), self._registry.closed(qualified, "remove") as path:
            remove_collection(path, backends=load_backends(self._chroma))

    def _seen(self, caller: Principal, name: str, opened: Mapping[str, object]) -> CollectionModel:
        """A collection in a list: one that cannot be seen must not hide the others."""
        qualified = caller.collection(name)
        try:
            if qualified in opened:
                listed = self.get(caller, name)
                return listed.model_copy(update={"sources": None})
            seen = glance(collection_path(qualified))
        except (CorpusError, ApiError, OSError) as error:
            problem, log = explain_to_client(error)
            if log:
                logger.warning("collection %s cannot be listed: %s", qualified, error)
            return CollectionModel(name=name, problem=problem.message)
        manifest = seen.manifest
        return CollectionModel(
            name=name,
            documents=seen.documents,
            chunks=seen.chunks,
            bytes=seen.bytes_on_disk,
            embedder=shown_embedder(manifest.embedder.spec),
            dimension=manifest.embedder.dimension,
            chunker=manifest.chunker,
            created_at=int(manifest.created),
            index=IndexModel(ready=not seen.faults, dense=None, pending=None, faults=list(seen.faults)),
        )


def _shown(name: str, stats: CollectionStats, created: float) -> CollectionModel:
    # What a fault is about may name a path; the log has it.
    faults = sorted({fault.partition(":")[0] for fault in stats.faults})
    return CollectionModel(
        name=name,
        documents=stats.documents,
        chunks=stats.chunks,
        bytes=stats.bytes_on_disk,
        embedder=shown_embedder(stats.embedder.spec),
        dimension=stats.embedder.dimension,
        chunker=stats.chunker,
        created_at=int(created),
        index=IndexModel(
            ready=not faults and not stats.pending, dense=stats.dense, pending=stats.pending, faults=faults
        ),
        sources=dict(stats.sources),
    )
