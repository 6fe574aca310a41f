"""Embedders by spec: `minilm`, `wordllama`, `st:NAME_OR_PATH`, `openai:MODEL@BASE_URL`, or what a package adds."""

from __future__ import annotations

from thresher.corpus.embedders.base import Embedder, EmbedderInfo, embedding_hash, embedding_input
from thresher.corpus.errors import UnknownEmbedder
from thresher.corpus.plugins import Group, PluginError, made, plugin_names

__all__ = ["Embedder", "EmbedderInfo", "embedding_hash", "embedding_input", "load_embedder"]

CHOICES = "minilm, wordllama, st:NAME_OR_PATH, openai:MODEL@BASE_URL"


def load_embedder(spec: str) -> Embedder:
    """The embedder that `spec` names. Models are read on first use; `info` of minilm and wordllama is free.

    Raises:
        UnknownEmbedder: the message lists the choices.
        EmbedderError: a package is not installed.
        PluginError: another package adds an embedder of that name, and it cannot be used.
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
    added: Embedder | None = made(Group.EMBEDDERS, spec)
    if added is not None:
        if added.info.spec != spec:  # the manifest keeps it, and the collection could not be opened again
            raise PluginError(
                f"the embedder of {spec!r} calls itself {added.info.spec!r}; its info.spec must be {spec!r}"
            )
        return added
    raise UnknownEmbedder(
        f"unknown embedder {spec!r}; choose one of: {', '.join((CHOICES, *plugin_names(Group.EMBEDDERS)))}"
    )
