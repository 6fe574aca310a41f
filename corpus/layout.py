"""Laying out the directory of a new collection."""

from __future__ import annotations

import time
from pathlib import Path

from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CollectionExists
from thresher.corpus.lexical.analyzer import ANALYZER_VERSION
from thresher.corpus.manifest import Manifest
from thresher.corpus.paths import DATABASE, LOCK, MANIFEST
from thresher.corpus.record.store import Store

_LEFTOVERS = {LOCK, "tantivy", "chroma", f"{MANIFEST}.new"}


def lay_out(path: Path, embedder: EmbedderInfo, name: str | None) -> Manifest:
    """Write an empty record, then the manifest, which makes the directory a collection. Needs the directory's lock.

    Raises:
        CollectionExists: there is a collection already, or something else.
    """
    if (path / MANIFEST).exists():
        raise CollectionExists(f"there is already a collection at {path}: open it, or choose another name")
    foreign = [p.name for p in path.iterdir() if p.name not in _LEFTOVERS and not p.name.startswith(DATABASE)]
    if foreign:
        raise CollectionExists(f"{path} is not empty ({foreign[0]} …): choose a new directory")
    # What a creation left behind that died before it wrote the manifest.
    for leftover in path.glob(f"{DATABASE}*"):
        leftover.unlink()
    Store(path / DATABASE, create=True).close()
    manifest = Manifest(
        name=name or path.name,
        embedder=embedder,
        analyzer=ANALYZER_VERSION,
        chunker=CHUNKER_VERSION,
        created=time.time(),
    )
    manifest.write(path)
    return manifest
