"""What a server can do, found out by doing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.remote.database import Record, RemoteCollection, RemoteDatabase
from thresher.corpus.remote.errors import RemoteRefused

logger = logging.getLogger(__name__)

_NAME = "thresher-probe"
_KEY = "bm25"
_VECTOR: Vectors = np.array([0.6, 0.8], dtype=np.float32)
_RECORD = Record("probe", _VECTOR, "a page to try features on", ([7], [1.0]))
_PLAIN = Record("probe", _VECTOR, "a page to try features on")


@dataclass(frozen=True, slots=True)
class Features:
    """What was seen to work.

    Attributes:
        version: what the server calls itself.
        search: the Search API.
        sparse: BM25 sparse vectors, written and found through it.
        regex: regular expressions over documents.
        missing: what the server said to what it does not have.
    """

    version: str
    search: bool
    sparse: bool
    regex: bool
    missing: tuple[str, ...] = ()


def probe(database: RemoteDatabase) -> Features:
    """Try each feature on a small collection, which stays behind for the next time.

    Raises:
        RemoteError: the server cannot be reached, or refuses for another reason than lacking the feature.
    """
    database.check()
    version = database.version()
    missing: list[str] = []
    sparse = _try(lambda: _sparse(database), missing)
    plain = database.create(f"{_NAME}-plain")
    features = Features(
        version=version,
        sparse=sparse,
        search=sparse or _try(lambda: _filled(plain, _PLAIN, _search), missing),
        regex=_try(lambda: _filled(plain, _PLAIN, _regex), missing),
        missing=tuple(missing),
    )
    logger.info("Chroma server %s: %s", database.address.identity, features)
    return features


def _sparse(database: RemoteDatabase) -> bool:
    return _filled(database.create(f"{_NAME}-sparse", sparse=_KEY), _RECORD, _bm25)


def _filled(collection: RemoteCollection, record: Record, attempt: Callable[[RemoteCollection], bool]) -> bool:
    """Whether the record is found, which is there from the second time on."""
    if attempt(collection):
        return True
    collection.upsert([record])
    return attempt(collection)


def _bm25(collection: RemoteCollection) -> bool:
    from chromadb import K, Knn, Search
    from chromadb.base_types import SparseVector

    rank = Knn(query=SparseVector([7], [1.0]), key=_KEY, limit=1)
    (hits,) = collection.search([Search(rank=rank, limit=1).select(K.SCORE)])
    # A server that accepts the vector and scores without it must not be taken for one that ranks by BM25.
    return bool(hits) and hits[0][0] == _RECORD.id and hits[0][1] < 1.0


def _search(collection: RemoteCollection) -> bool:
    from chromadb import Knn, Search

    (hits,) = collection.search([Search(rank=Knn(query=_VECTOR.tolist(), limit=1), limit=1)])
    return [identifier for identifier, _, _ in hits] == [_PLAIN.id]


def _regex(collection: RemoteCollection) -> bool:
    return collection.matching({"$regex": "p.ge"}, 1) == [_PLAIN.id]


def _try(attempt: Callable[[], bool], missing: list[str]) -> bool:
    try:
        return attempt()
    except RemoteRefused as error:
        if not error.lacking:
            raise
        missing.append(error.reason)
        return False
