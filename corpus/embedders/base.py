"""The one interface of every embedder, and what exactly is embedded for a chunk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thresher.corpus.documents import Vectors


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """Identity of an embedder, kept in the manifest: vectors of two identities are never mixed.

    Attributes:
        spec: what the user writes to get it (`minilm`, `wordllama`, `st:NAME_OR_PATH`, `openai:MODEL@URL`).
        revision: the version of the weights (package version, hub revision, or a hash of the config).
    """

    spec: str
    dimension: int
    revision: str


class Embedder(Protocol):
    """Turns strings into unit vectors. Implementations are thread-safe and deterministic."""

    @property
    def info(self) -> EmbedderInfo:
        """Identity and dimension."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages, shape (len(texts), dimension), float32, unit length."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Vectors for queries, same shape rule; differs from passages where the model has a query prompt."""


def embedding_input(title: str, text: str) -> str:
    """The string embedded for a chunk: its document's title on a line of its own, then the passage."""
    return f"{title}\n{text}" if title else text


def embedding_hash(text: str) -> str:
    """Hex SHA-256 of an embedding input, the key of the embedding cache."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
