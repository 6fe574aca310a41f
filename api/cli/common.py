"""What several commands share: options, settings, and opening collections."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection

CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", metavar="NAME", help="Collection to use (default: default).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
EffortOption = Annotated[
    str | None, typer.Option("--effort", metavar="EFFORT", help="minimal (one search), low, medium or high.")
]
PolicyOption = Annotated[str | None, typer.Option("--policy", metavar="POLICY", help="What decides the next turn.")]
EmbedderOption = Annotated[
    str | None,
    typer.Option("--embedder", metavar="SPEC", help="minilm, wordllama, st:NAME_OR_PATH or openai:MODEL@BASE_URL."),
]


def settings(ctx: typer.Context, **flags: Any) -> Settings:
    """The settings of this call; flags that are None count as not given."""
    from thresher.api.config import load_settings

    config = ctx.find_root().obj
    return load_settings(flags, config=config if isinstance(config, Path) else None).settings


def require_collection(name: str) -> Path:
    """The directory of a collection that exists.

    Raises:
        CollectionNotFound: there is none; the message lists those that there are.
    """
    from thresher.corpus.errors import CollectionNotFound
    from thresher.corpus.paths import collection_path, is_collection, list_collections

    path = collection_path(name)
    if not is_collection(path):
        known = list_collections()
        hint = f"the known ones are {', '.join(known)}" if known else "there is none yet"
        raise CollectionNotFound(f"there is no collection {name!r}: {hint}; `thresher ingest -c {name} PATH` makes one")
    return path


def open_collection(name: str) -> Collection:
    """A collection that exists."""
    from thresher.corpus.collection import Collection

    return Collection.open(require_collection(name))


def open_or_create(name: str, embedder: str | None, default_embedder: str) -> Collection:
    """A collection to write to, made if need be.

    Raises:
        CollectionMismatch: it exists with another embedder than the one asked for by `embedder`.
    """
    from thresher.corpus.collection import Collection
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.paths import collection_path, is_collection

    path = collection_path(name)
    if not embedder and is_collection(path):
        return Collection.open(path)
    return Collection.open_or_create(path, load_embedder(embedder or default_embedder))
