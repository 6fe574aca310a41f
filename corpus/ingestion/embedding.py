"""Vectors for the passages of documents: those that are known are looked up, the others are computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import Embedder, EmbedderInfo, embedding_hash, embedding_input
from thresher.corpus.errors import EmbedderError
from thresher.corpus.record.values import storable

_BATCH = 512

Lookup = Callable[[Collection[str]], Mapping[str, Vectors]]
"""From embedding hashes to the vectors, shape (dimension,), of those that are known."""


class LazyEmbedder:
    """The embedder of a manifest, loaded only if something must be embedded: much upkeep of a collection needs none."""

    def __init__(self, info: EmbedderInfo) -> None:
        self.info = info
        self._loading = threading.Lock()
        self._loaded: Embedder | None = None

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`; raises EmbedderError also if what is loaded is another revision."""
        return self._embedder().embed_passages(texts)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`; raises EmbedderError also if what is loaded is another revision."""
        return self._embedder().embed_queries(texts)

    def _embedder(self) -> Embedder:
        with self._loading:
            if self._loaded is None:
                from thresher.corpus.embedders import load_embedder

                loaded = load_embedder(self.info.spec)
                if loaded.info != self.info:
                    raise EmbedderError(
                        f"embedder {self.info.spec!r} is revision {loaded.info.revision!r} here, but vectors of "
                        f"revision {self.info.revision!r} are needed: install the package or model of that revision"
                    )
                self._loaded = loaded
            return self._loaded


@dataclass(frozen=True, slots=True)
class Embedded:
    """Documents with their vectors; how many passages were computed, and how many vectors were known before."""

    documents: list[PreparedDocument]
    embedded: int
    reused: int


def embed_documents(
    documents: Sequence[tuple[Document, tuple[Span, ...]]], embedder: Embedder, known: Sequence[Lookup]
) -> Embedded:
    """Vectors for the passages of some documents; every look-up is asked for what those before it did not know.

    Raises:
        EmbedderError: the embedder did not answer, or not with unit vectors of the dimension that it promises.
    """
    inputs: dict[str, str] = {}
    hashes: list[tuple[str, ...]] = []
    for document, spans in documents:
        # The stored form of the text is what a later run will find, so its hash must be the one that is kept.
        title, text = storable(document.title), storable(document.text)
        texts = [embedding_input(title, text[span.start : span.end]) for span in spans]
        hashes.append(tuple(embedding_hash(each) for each in texts))
        inputs.update(zip(hashes[-1], texts, strict=True))
    vectors: dict[str, Vectors] = {}
    for lookup in known:
        if unknown := [digest for digest in inputs if digest not in vectors]:
            vectors.update(lookup(unknown))
    unknown = [digest for digest in inputs if digest not in vectors]
    for start in range(0, len(unknown), _BATCH):
        batch = unknown[start : start + _BATCH]
        rows = _checked(embedder.embed_passages([inputs[digest] for digest in batch]), len(batch), embedder)
        vectors.update(zip(batch, rows, strict=True))
    nothing = np.zeros((0, embedder.info.dimension), dtype=np.float32)
    prepared = [
        PreparedDocument(document, spans, group, np.stack([vectors[digest] for digest in group]) if group else nothing)
        for (document, spans), group in zip(documents, hashes, strict=True)
    ]
    return Embedded(prepared, len(unknown), sum(len(group) for group in hashes) - len(unknown))


def _checked(rows: Vectors, count: int, embedder: Embedder) -> Vectors:
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    shape = (count, embedder.info.dimension)
    if rows.shape != shape or not np.all(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < 1e-2):
        raise EmbedderError(
            f"embedder {embedder.info.spec!r} returned vectors of shape {rows.shape}, expected unit vectors of {shape}"
        )
    return rows
