"""From documents to passages, and to documents with vectors: the one place where passages are embedded to be stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.chunker import Chunker
from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash, embedding_input
from thresher.corpus.embedders.vectors import are_unit_vectors
from thresher.corpus.errors import EmbedderError
from thresher.corpus.loaders.base import BadRecord
from thresher.corpus.record.values import storable

Embed = Callable[[Sequence[str]], Vectors]
"""Vectors of texts, shape (len(texts), dimension)."""

KnownVectors = Callable[[Collection[str]], Mapping[str, Vectors]]
"""For each known hash of an embedding input, its vector of shape (dimension,); see `Collection.known_vectors`."""


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document and its passages."""

    document: Document
    spans: tuple[Span, ...]


def chunk_documents(items: Iterable[Document | BadRecord], chunker: Chunker) -> Iterator[Chunked | BadRecord]:
    """What a loader gives, with the passages of each document; one after the other, as they are asked for."""
    for item in items:
        yield item if isinstance(item, BadRecord) else Chunked(item, tuple(chunker(item.text)))


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


def prepare_documents(chunked: Sequence[Chunked], embed: Embed, info: EmbedderInfo, *known: KnownVectors) -> Prepared:
    """Give every passage its vector: known ones are looked up, each distinct other one is computed once.

    Args:
        info: the embedder behind `embed`.
        known: where vectors may be known; each is asked for what those before it did not know.

    Raises:
        EmbedderError: as `embed` does, or it did not give unit vectors of `info`'s dimension; nothing was written.
    """
    inputs: dict[str, str] = {}
    hashes: list[tuple[str, ...]] = []
    for item in chunked:
        # The stored form of the text is what a later run will find, so its hash must be the one that is kept.
        title, text = storable(item.document.title), storable(item.document.text)
        texts = [embedding_input(title, text[span.start : span.end]) for span in item.spans]
        hashes.append(tuple(embedding_hash(passage) for passage in texts))
        inputs.update(zip(hashes[-1], texts, strict=True))
    vectors: dict[str, Vectors] = {}
    unknown = list(inputs)
    for look_up in known:
        if unknown:
            vectors.update(look_up(unknown))
            unknown = [digest for digest in unknown if digest not in vectors]
    if unknown:
        vectors.update(
            zip(unknown, _checked(embed([inputs[digest] for digest in unknown]), len(unknown), info), strict=True)
        )
    none = np.zeros((0, info.dimension), dtype=np.float32)
    documents = tuple(
        PreparedDocument(
            item.document, item.spans, group, np.stack([vectors[digest] for digest in group]) if group else none
        )
        for item, group in zip(chunked, hashes, strict=True)
    )
    return Prepared(documents, len(unknown), sum(len(group) for group in hashes) - len(unknown))


def _checked(rows: Vectors, count: int, info: EmbedderInfo) -> Vectors:
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    shape = (count, info.dimension)
    if rows.shape != shape or not are_unit_vectors(rows):
        raise EmbedderError(
            f"embedder {info.spec!r} returned vectors of shape {rows.shape}, expected unit vectors of {shape}"
        )
    return rows
