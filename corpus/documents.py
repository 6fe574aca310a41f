"""The words of the corpus: documents, chunks, hits, sources and their statuses.

Everything here is plain data. A *document* is a source text with a stable id and URI; a *chunk* is a passage of
it, named by its character offsets into `Document.text`; a *source* is the file (or record stream) that documents
were read from. One source can hold many documents: a JSONL file holds one a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Metadata = Mapping[str, str | int | float | bool]
Vectors = npt.NDArray[np.float32]


PAGE_BREAK = "\f"
"""Between the pages of a paged document's text (a PDF), so that an offset can be turned into a page number."""


def page_at(text: str, offset: int) -> int:
    """The page that the character at `offset` is on, from 1."""
    return text.count(PAGE_BREAK, 0, offset) + 1


class Status(StrEnum):
    """What became of a source. `indexed` is written last, when every index holds all of it."""

    INDEXED = "indexed"
    UNCHANGED = "unchanged"
    NO_TEXT = "no_text"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets, `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A source text. `id` is unique in its collection and stable across re-ingestion.

    Attributes:
        id: for files, the POSIX path relative to the ingested root; for records, the record's own id.
        uri: where a person finds it (`file:///…`, `https://…`).
        text: the extracted plain text; chunk offsets index it.
        content_hash: hex SHA-256 of everything that decides the indexed form (title, text, metadata).
    """

    id: str
    uri: str
    title: str
    text: str
    metadata: Metadata = field(default_factory=dict)
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be written: chunked and embedded outside any lock.

    Attributes:
        spans: the chunks, in order; offsets into `document.text`.
        embed_hashes: per chunk, the hash of the exact string that was embedded (see `embedding_input`).
        vectors: shape (len(spans), dimension), float32, unit length.
    """

    document: Document
    spans: tuple[Span, ...]
    embed_hashes: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Chunk:
    """A live passage, hydrated from the record. `id` is never reused: a changed document gets new chunk ids."""

    id: int
    document_id: str
    uri: str
    title: str
    index: int
    start: int
    end: int
    text: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a query found.

    Attributes:
        score: the fused score: by reciprocal rank, or in [0, 1] for a convex combination; 0.0 for grep. The list is
            ordered by it, except where a reranker ordered it.
        dense: cosine similarity in [-1, 1], or None if the dense index did not return it.
        bm25: BM25 score, or None if the lexical index did not return it.
        rank: position (from 0) in the query's full ranking, before already-shown chunks were left out; a caller
            can so tell news (a small rank) from scraping the barrel.
        rerank: the reranker's score, or None if no reranker read it.
        duplicates: ids of worse ranked chunks left out because nearly all they say stands in this one.
    """

    chunk: Chunk
    score: float
    dense: float | None = None
    bm25: float | None = None
    rank: int = 0
    rerank: float | None = None
    duplicates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file (or other origin) that documents were read from, and what became of it.

    Attributes:
        id: unique in the collection; for files, the POSIX path relative to `root`; for pages, the URL as it was listed.
        root: what the user named on the command line, resolved: a folder (the fixed part of a pattern), a file, a URL,
            or `urls:` and the list that named the page; `put:` for documents that were handed over, `upload:` for
            files that were.
        content_hash: hex SHA-256 of the raw bytes; equal hash means nothing to do. For pages, a space and what the
            server needs to tell whether the page has changed may follow (see `ingestion.web.pages.pack`).
        reason: for people, set when status is `no_text`, `skipped` or `failed`.
    """

    id: str
    root: str
    content_hash: str
    size: int
    modified: float
    status: Status
    reason: str | None = None
    documents: int = 0
    chunks: int = 0
