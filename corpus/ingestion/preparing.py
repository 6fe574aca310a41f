"""From chunked documents to documents with vectors: the one place where passages are embedded to be stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import embedding_hash, embedding_input

Embed = Callable[[Sequence[str]], Vectors]
"""Vectors of texts, shape (len(texts), dimension)."""

KnownVectors = Callable[[Collection[str]], Mapping[str, Vectors]]
"""For each known hash of an embedding input, its vector of shape (dimension,); see `Collection.known_vectors`."""


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document and its passages."""

    document: Document
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Documents ready to be written.

    Attributes:
        embedded: passages that were computed.
        reused: passages whose vector was known, or occurred twice among these documents.
    """

    documents: tuple[PreparedDocument, ...] = ()
    embedded: int = 0
    reused: int = 0


def prepare_documents(chunked: Sequence[Chunked], known_vectors: KnownVectors, embed: Embed) -> Prepared:
    """Give every passage its vector: known ones from the cache, each distinct other one computed once.

    Raises:
        EmbedderError: as `embed` does; nothing was written anywhere.
    """
    inputs: dict[str, str] = {}
    hashes: list[tuple[str, ...]] = []
    for item in chunked:
        document = item.document
        texts = [embedding_input(document.title, document.text[span.start : span.end]) for span in item.spans]
        hashes.append(tuple(embedding_hash(text) for text in texts))
        inputs.update(zip(hashes[-1], texts, strict=True))
    if not inputs:
        return Prepared()
    vectors = dict(known_vectors(list(inputs)))
    unknown = [digest for digest in inputs if digest not in vectors]
    if unknown:
        vectors.update(zip(unknown, embed([inputs[digest] for digest in unknown]), strict=True))
    documents = tuple(
        PreparedDocument(item.document, item.spans, group, np.stack([vectors[digest] for digest in group]))
        for item, group in zip(chunked, hashes, strict=True)
    )
    return Prepared(documents, len(unknown), sum(len(group) for group in hashes) - len(unknown))
