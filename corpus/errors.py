"""Errors of the corpus. Each message says what happened and what to do next."""

from __future__ import annotations


class CorpusError(Exception):
    """Base of every error that the corpus raises on purpose. `code` is stable and machine-readable."""

    code = "corpus_error"


class CollectionNotFound(CorpusError):
    """No collection at that path or under that name."""

    code = "collection_not_found"


class CollectionExists(CorpusError):
    """There is already a collection at that path."""

    code = "collection_exists"


class CollectionClosed(CorpusError):
    """The collection object was closed; open it again."""

    code = "collection_closed"


class DocumentNotFound(CorpusError):
    """No live document has that id; the message names it."""

    code = "document_not_found"


class StorageFull(CorpusError):
    """The disk is full. Nothing of the refused write was kept."""

    code = "storage_full"


class CollectionUnavailable(CorpusError):
    """The operating system does not let the collection's files be used: permissions, a read-only disk, a wrong path."""

    code = "collection_unavailable"


class CollectionLocked(CorpusError):
    """Another process owns the corpus directory; the message names its pid."""

    code = "collection_locked"

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class CollectionMismatch(CorpusError):
    """The collection was built with another embedder, analyzer or chunker than the one asked for."""

    code = "collection_mismatch"


class UnknownChunker(CorpusError):
    """This release has no chunker of that spec; the message lists the choices."""

    code = "unknown_chunker"


class ReindexRefused(CorpusError):
    """A reindex, or a step of one, cannot be done as things are; the message says what to do first."""

    code = "reindex_refused"


class TransferError(CorpusError):
    """A file to import or a snapshot to restore is not what it should be, or a place to write is taken."""

    code = "transfer_error"


class CollectionDamaged(CorpusError):
    """The record itself cannot be read (derived indexes are rebuilt without an error)."""

    code = "collection_damaged"


class InvalidQuery(CorpusError):
    """The query, pattern or filter cannot be run as given."""

    code = "invalid_query"


class InvalidFilter(InvalidQuery):
    """The metadata filter does not follow the grammar."""

    code = "invalid_filter"


class SearchTimeout(CorpusError):
    """A scan passed its deadline. Narrow the pattern or add a filter."""

    code = "search_timeout"


class EmbedderError(CorpusError):
    """The embedder cannot be loaded or did not answer."""

    code = "embedder_error"


class UnknownEmbedder(EmbedderError):
    """This release has no embedder of that spec; the message lists the choices."""

    code = "unknown_embedder"


class LoaderError(CorpusError):
    """A file cannot be turned into text; the message is the reason shown to the user."""

    code = "loader_error"


class InvalidRanking(CorpusError):
    """The way of ranking that was asked for does not exist."""

    code = "invalid_ranking"


class RerankError(CorpusError):
    """The reranker cannot be loaded, did not answer, or answered with something that is no score."""

    code = "rerank_error"


class InvalidLabels(CorpusError):
    """The labelled questions cannot be learned from."""

    code = "invalid_labels"


class ClusterError(CorpusError):
    """The Ray cluster cannot be reached or used; nothing was changed."""

    code = "cluster_unavailable"


class IndexUnreachable(CorpusError):
    """What runs a derived index does not answer now. The index itself may be in order: try again later."""

    code = "index_unreachable"
