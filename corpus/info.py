"""What a collection says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from thresher.corpus.documents import Metadata
from thresher.corpus.embedders.base import EmbedderInfo


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A live document without its text. `chunks` is how many chunks it has."""

    id: str
    uri: str
    title: str
    metadata: Metadata
    content_hash: str
    source_id: str
    chunks: int


@dataclass(frozen=True, slots=True)
class IndexBeside:
    """An index that lies beside the one that serves: specs of its embedder and chunker, None if it cannot be read."""

    embedder: str | None
    chunker: str | None
    bytes_on_disk: int


@dataclass(frozen=True, slots=True)
class CollectionStats:
    """The state of a collection.

    Attributes:
        sources: how many sources have each status.
        bytes_on_disk: of the whole directory, indexes beside included.
        last_seq: the newest operation in the record.
        applied_seq: per derived index (`lexical`, `dense`), the newest operation it holds.
        pending: operations that some derived index still lacks.
        dense: what answers dense queries now.
        dense_reason: why, for people.
        faults: derived indexes that were put aside or are being rebuilt, and why.
        chunker: spec of the chunker that cuts what is written.
        next: the new index that a reindex has built, or not finished; None if there is none.
        previous: the index that a reindex replaced; None if there is none.
    """

    documents: int
    chunks: int
    sources: Mapping[str, int]
    bytes_on_disk: int
    embedder: EmbedderInfo
    last_seq: int
    applied_seq: Mapping[str, int]
    pending: int
    dense: Literal["chroma", "exact"]
    dense_reason: str
    faults: tuple[str, ...] = ()
    chunker: str = ""
    next: IndexBeside | None = None
    previous: IndexBeside | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome of a cross-check of the record and its derived indexes."""

    documents: int
    chunks: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild did.

    Attributes:
        chunks: chunks in each index.
        generations: per derived index (`lexical`, `dense`), the number of its new generation.
        embedded: passages that were embedded anew: none, unless the embedder or chunker was changed.
    """

    chunks: int
    seconds: float
    generations: Mapping[str, int] = field(default_factory=dict)
    embedded: int = 0
