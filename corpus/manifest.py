"""`manifest.json`: what a collection was built with. Written by atomic rename, read before anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any

from thresher.corpus.access import accessible
from thresher.corpus.chunker import CHUNKER_VERSION, Chunker, load_chunker
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CollectionDamaged, CollectionMismatch, UnknownChunker
from thresher.corpus.paths import DATABASE, MANIFEST, replace_file

FORMAT = 1

RECORDED_MANIFEST = "manifest"
"""Row of the record's `meta` with the manifest as it was at creation, to restore one that was lost."""

RECORDED_EMBEDDER = "embedder"
"""Row of the record's `meta` that says who made its vectors, where an earlier release changed that after creation."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Identity of a collection.

    Attributes:
        format: version of the directory layout and of the record's schema.
        embedder: every stored vector came from this embedder.
        analyzer: version of the BM25 analyzer that the lexical index was built with.
        chunker: spec of the chunker that cuts every document of the collection (see `load_chunker`).
        created: seconds since the epoch.
    """

    name: str
    embedder: EmbedderInfo
    analyzer: str
    chunker: str
    created: float
    format: int = FORMAT

    def to_json(self) -> str:
        """The form in which it is stored."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)

    def write(self, directory: Path) -> None:
        """Replace the manifest of `directory` so that a crash leaves the old one or the new one."""
        with accessible(directory):
            replace_file(directory / MANIFEST, f"{self.to_json()}\n")

    def with_analyzer(self, analyzer: str) -> Manifest:
        """The same manifest after the lexical index was rebuilt with another analyzer."""
        return replace(self, analyzer=analyzer)

    def check_embedder(self, info: EmbedderInfo, directory: Path) -> None:
        """Raise `CollectionMismatch` unless `info` is the embedder of the stored vectors."""
        if info == self.embedder:
            return
        differences = ", ".join(
            f"{name} {getattr(self.embedder, name)!r} → {getattr(info, name)!r}"
            for name in ("spec", "dimension", "revision")
            if getattr(self.embedder, name) != getattr(info, name)
        )
        raise CollectionMismatch(
            f"the vectors of collection {self.name!r} ({directory}) come from another embedder ({differences}); "
            f"open it with {self.embedder.spec!r} at revision {self.embedder.revision!r}, or embed its stored text "
            f"again with `thresher reindex {self.name} --embedder {info.spec}`"
        )

    def load_chunker(self, directory: Path) -> Chunker:
        """The chunker that cuts what is written to the collection.

        Raises:
            CollectionMismatch: this release does not have it; has the command that moves the collection to another.
        """
        try:
            return load_chunker(self.chunker)
        except UnknownChunker as error:
            raise CollectionMismatch(
                f"collection {self.name!r} ({directory}) was cut into passages by chunker {self.chunker!r}, which this "
                "release does not have: it can be searched, but to write to it cut its stored text again with "
                f"`thresher reindex {self.name} --chunker {CHUNKER_VERSION}`"
            ) from error

    def check_chunker(self, spec: str, directory: Path) -> None:
        """Raise `CollectionMismatch` unless `spec` is the collection's chunker, `UnknownChunker` if it is none."""
        wanted = load_chunker(spec).version
        if wanted != self.chunker:
            raise CollectionMismatch(
                f"collection {self.name!r} ({directory}) was cut into passages by chunker {self.chunker!r}, not "
                f"{wanted!r}: leave the chunker out, or cut its stored text again with "
                f"`thresher reindex {self.name} --chunker {wanted}`"
            )


def settle_embedder(manifest: Manifest, recorded: str | None, directory: Path) -> Manifest:
    """The manifest in agreement with the record, which is right if a crash came between the two."""
    if recorded is None or (info := EmbedderInfo(**json.loads(recorded))) == manifest.embedder:
        return manifest
    manifest = replace(manifest, embedder=info)
    manifest.write(directory)
    return manifest


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a collection.

    Raises:
        CollectionDamaged: it is not a manifest.
        CollectionMismatch: a newer release wrote it.
        CollectionUnavailable: the operating system refuses to read it.
    """
    path = directory / MANIFEST
    try:
        with accessible(directory):
            return parse_manifest(path.read_text(encoding="utf-8"), directory)
    except ValueError as error:
        raise CollectionDamaged(
            f"{path} is not a readable manifest ({error}): restore it from a backup, or delete it and run the command "
            f"again, which restores it from {DATABASE}"
        ) from error


def parse_manifest(text: str, directory: Path) -> Manifest:
    """A manifest from its stored form.

    Raises:
        ValueError: it is not a manifest.
        CollectionMismatch: a newer release wrote it.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict) or not isinstance(fields.get("embedder"), dict):
        raise ValueError("it does not say which embedder made the vectors")
    layout = fields.get("format")
    if isinstance(layout, int) and layout != FORMAT:
        raise CollectionMismatch(
            f"{directory} has layout {layout}, this release reads layout {FORMAT}: use the release that "
            "created it, or ingest the sources again with `thresher ingest`"
        )
    return Manifest(**_typed({**fields, "embedder": EmbedderInfo(**_typed(fields["embedder"], _EMBEDDER))}, _MANIFEST))


_EMBEDDER = {"spec": str, "dimension": int, "revision": str}
_MANIFEST = {
    "name": str,
    "embedder": EmbedderInfo,
    "analyzer": str,
    "chunker": str,
    "created": int | float,
    "format": int,
}


def _typed(fields: Mapping[str, Any], kinds: Mapping[str, type | UnionType]) -> dict[str, Any]:
    """`fields` if they are exactly those of `kinds`, each of its kind."""
    if fields.keys() != kinds.keys():
        raise ValueError(f"it has the fields {', '.join(sorted(fields))}; expected {', '.join(sorted(kinds))}")
    for name, kind in kinds.items():
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            raise ValueError(f"its {name} is {fields[name]!r}")
    return dict(fields)
