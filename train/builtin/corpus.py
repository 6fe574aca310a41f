"""A collection as the builtin policy sees it, nothing looked up twice: rollouts of one task ask the same things."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.lexical import Corpus

MOST = 200_000
"""Texts whose vectors are kept: about 300 MB at 384 dimensions."""


class RememberingCorpus:
    """Thread-safe. The collection must not change meanwhile."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._size: int | None = None
        self._queries: dict[str, Vectors] = {}
        self._terms: dict[str, list[str]] = {}
        self._frequencies: dict[str, int] = {}
        self._chunks: dict[int, Vectors] = {}
        self._guard = threading.Lock()

    @property
    def chunk_count(self) -> int:
        """Number of live chunks."""
        if self._size is None:
            self._size = self._corpus.chunk_count
        return self._size

    def analyze(self, text: str) -> list[str]:
        """The terms of a text."""
        if text not in self._terms:
            self._terms[text] = self._corpus.analyze(text)
        return self._terms[text]

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """In how many chunks each term occurs."""
        missing = [term for term in dict.fromkeys(terms) if term not in self._frequencies]
        if missing:
            self._frequencies.update(zip(missing, self._corpus.document_frequency(missing), strict=True))
        return [self._frequencies[term] for term in terms]

    def query_vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of short strings, shape (len(texts), dimension)."""
        if not texts:
            return self._corpus.query_vectors(texts)
        with self._guard:
            known = {text: self._queries[text] for text in texts if text in self._queries}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known.update(zip(missing, self._corpus.query_vectors(missing), strict=True))
            with self._guard:
                if len(self._queries) + len(missing) > MOST:
                    self._queries.clear()
                self._queries.update((text, known[text]) for text in missing)
        return np.stack([known[text] for text in texts])

    def vectors(self, chunk_ids: Sequence[int]) -> Vectors:
        """Stored vectors of chunks, shape (len(chunk_ids), dimension)."""
        missing = [chunk for chunk in dict.fromkeys(chunk_ids) if chunk not in self._chunks]
        if missing or not chunk_ids:
            found = self._corpus.vectors(missing)
            if not chunk_ids:
                return found
            with self._guard:
                self._chunks.update(zip(missing, found, strict=True))
        return np.stack([self._chunks[chunk] for chunk in chunk_ids])
