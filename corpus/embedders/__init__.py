"""Embedders by spec: `minilm`, `wordllama`, `st:NAME_OR_PATH`, `openai:MODEL@BASE_URL`."""

from __future__ import annotations

from thresher.corpus.embedders.base import Embedder, EmbedderInfo, embedding_hash, embedding_input
from thresher.corpus.errors import UnknownEmbedder

__all__ = ["Embedder", "EmbedderInfo", "embedding_hash", "embedding_input", "load_embedder"]

CHOICES = "minilm, wordllama, st:NAME_OR_PATH, openai:MODEL@BASE_URL"


def load_embedder(spec: str) -> Embedder:
    """The embedder that `spec` names. Models are read on first use; `info` of minilm and wordllama is free.

    Raises:
        UnknownEmbedder: the message lists the choices.
        EmbedderError: a package is not installed.
    """
    kind, _, rest = spec.partition(":")
    if spec == "minilm":
        from thresher.corpus.embedders.minilm import MiniLM

        return MiniLM()
    if spec == "wordllama":
        from thresher.corpus.embedders.wordllama import WordLlama

        return WordLlama()
    if kind == "st" and rest:
        from thresher.corpus.embedders.sentence_transformer import SentenceTransformerEmbedder

        return SentenceTransformerEmbedder(rest)
    if kind == "openai" and rest:
        from thresher.corpus.embedders.endpoint import EndpointEmbedder

        return EndpointEmbedder.from_spec(spec)
    raise UnknownEmbedder(f"unknown embedder {spec!r}; choose one of: {CHOICES}")
