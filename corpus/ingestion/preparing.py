"""From chunked documents to documents with vectors: the one place where passages are embedded to be stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash, embedding_input
from thresher.corpus.errors import EmbedderError
from thresher.corpus.record.values import storable

Embed = Callable[[Sequence[str]], Vectors]
"""Vectors of texts, shape (len(texts), dimension)."""

KnownVectors = Callable[[Collection[str]], Mapping[str, Vectors]]
"""For each known hash of an embedding input, its vector of shape (dimension,); see `Collection.known_vectors`."""

_UNIT_TOLERANCE = 1e-2


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
    if rows.shape != shape or not np.all(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT_TOLERANCE):
        raise EmbedderError(
            f"embedder {info.spec!r} returned vectors of shape {rows.shape}, expected unit vectors of {shape}"
        )
    return rows
