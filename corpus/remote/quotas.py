"""What Chroma Cloud allows a tenant by default. A distributed Chroma of one's own allows more, and is not hurt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits that requests are cut to.

    Attributes:
        records: records a write, and ids a request.
        results: results a ranking, and rows a page.
        reads, writes: requests under way at once on a collection.
        document_bytes: of a record's text in UTF-8.
        sparse_terms: of a sparse vector, which as a metadata value is limited in bytes (4,096 are documented by some
            pages, 8,182 by others; a term takes 8).
        pattern_bytes: of a regular expression.
        searches: rankings in one request.
    """

    records: int = 300
    results: int = 300
    reads: int = 10
    writes: int = 4
    document_bytes: int = 16_384
    sparse_terms: int = 1_000
    pattern_bytes: int = 256
    searches: int = 10
