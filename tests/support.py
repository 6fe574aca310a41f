"""Helpers shared by the test suites: a tiny deterministic embedder, small collections, the real evaluation data."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash, embedding_input


class HashEmbedder:
    """Bag of hashed words: near-zero cost, deterministic, and texts that share words are close."""

    def __init__(self, dimension: int = 64) -> None:
        self.info = EmbedderInfo("test-hash", dimension, "1")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.info.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
                vectors[row, int.from_bytes(digest[:4], "big") % self.info.dimension] += 1 if digest[4] % 2 else -1
            vectors[row, 0] += 1e-3  # a text without words still has a direction
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self.embed_passages(texts)


def prepare(
    document: Document, *, embedder: HashEmbedder | None = None, spans: Sequence[Span] | None = None
) -> PreparedDocument:
    """Chunk (one chunk a paragraph by default) and embed a document."""
    if spans is None:
        spans = [Span(m.start(), m.end()) for m in re.finditer(r"\S(?:.|\n(?!\n))*", document.text)]
    inputs = [embedding_input(document.title, document.text[span.start : span.end]) for span in spans]
    return PreparedDocument(
        document,
        tuple(spans),
        tuple(embedding_hash(text) for text in inputs),
        (embedder or HashEmbedder()).embed_passages(inputs),
    )


def make_collection(
    path: Path, texts: Mapping[str, str], *, metadata: Mapping[str, Mapping[str, str | int]] | None = None
) -> Collection:
    """A real collection of documents {id: text}; the title is the id without its suffix."""
    collection = Collection.create(path, HashEmbedder())
    collection.upsert(
        [
            prepare(
                Document(
                    id=document_id,
                    uri=f"file:///{document_id}",
                    title=document_id.rsplit(".", 1)[0],
                    text=text,
                    metadata=(metadata or {}).get(document_id, {}),
                    content_hash=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                )
            )
            for document_id, text in texts.items()
        ],
        source_id="test",
    )
    return collection


def shared_data(name: str) -> Path:
    """A folder of the evaluation data beside the repository; the test is skipped where it is absent."""
    root = Path(os.environ.get("THRESHER_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    if not (root / name).exists():
        pytest.skip(f"evaluation data {name} is not at {root} (set THRESHER_TEST_DATA)")
    return root / name
