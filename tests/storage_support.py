"""Helpers of the storage tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from support import HashEmbedder

from thresher.corpus.documents import Document, PreparedDocument, Source, Span, Status, Vectors
from thresher.corpus.embedders.base import embedding_hash, embedding_input


class SpreadEmbedder(HashEmbedder):
    """Bag of words with as much of the text's own direction.

    Hundreds of texts at about the same distance are a test's invention that HNSW cannot cope with: of 400 such vectors
    it loses one in two builds or so at 0.4 of an own direction, and none in 25 builds at 0.8.
    """

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        rows = super().embed_passages(texts)
        for row, text in zip(rows, texts, strict=True):
            own = np.random.default_rng(list(text.encode())).normal(size=len(row))
            row += (own / np.linalg.norm(own)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


EMBEDDER = SpreadEmbedder(64)


Metadata = Mapping[str, str | int | float | bool]


def prepared(
    identifier: str, text: str, *, title: str = "", size: int = 80, metadata: Metadata | None = None, uri: str = ""
) -> PreparedDocument:
    """A document cut into pieces of `size` characters."""
    spans = tuple(Span(i, min(i + size, len(text))) for i in range(0, len(text), size))
    inputs = [embedding_input(title, text[span.start : span.end]) for span in spans]
    digest = hashlib.sha256(repr((title, text, metadata)).encode("utf-8", "surrogatepass")).hexdigest()
    document = Document(identifier, uri or f"file:///{identifier}", title, text, metadata or {}, digest)
    vectors = EMBEDDER.embed_passages([text.encode("utf-8", "replace").decode() for text in inputs])
    return PreparedDocument(document, spans, tuple(embedding_hash(text) for text in inputs), vectors)


def source(identifier: str, *, root: str = "/data", status: Status = Status.INDEXED) -> Source:
    return Source(
        identifier, root, hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest(), 10, 1.5, status
    )
