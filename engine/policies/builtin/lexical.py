"""Term statistics of the collection: which words of a question carry it, and how much of it a text covers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.questions import FUNCTION

Terms = frozenset[str]


class Corpus(Protocol):
    """What the policy knows of a collection beside what its tools show it: statistics, and vectors of shown chunks."""

    @property
    def chunk_count(self) -> int:
        """Number of live chunks."""

    def analyze(self, text: str) -> list[str]:
        """The terms of a text, as the BM25 index sees them."""

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """In how many chunks each analyzed term occurs."""

    def query_vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of short strings, shape (len(texts), dimension)."""

    def vectors(self, chunk_ids: Sequence[int]) -> Vectors:
        """Stored vectors of chunks, shape (len(chunk_ids), dimension)."""


class Lexical:
    """Analyzed terms and their idf, remembered for one search."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._size: int | None = None
        self._function: Terms | None = None
        self._terms: dict[str, Terms] = {}
        self._idf: dict[str, float] = {}

    def terms(self, text: str) -> Terms:
        """The distinct terms of a text."""
        if text not in self._terms:
            self._terms[text] = frozenset(self._corpus.analyze(text))
        return self._terms[text]

    def content(self, text: str) -> Terms:
        """The terms of a text without function words."""
        if self._function is None:
            self._function = FUNCTION | frozenset(self._corpus.analyze(" ".join(sorted(FUNCTION))))
        return self.terms(text) - self._function

    def idf(self, term: str) -> float:
        """log(1 + (N + ½) / (df + ½)): always positive, largest for terms that the collection has never seen."""
        if term not in self._idf:
            self.learn((term,))
        return self._idf[term]

    def learn(self, terms: Iterable[str]) -> None:
        """Look up the idf of many terms at once."""
        missing = sorted({term for term in terms if term not in self._idf})
        if missing:
            if self._size is None:
                self._size = self._corpus.chunk_count
            for term, frequency in zip(missing, self._corpus.document_frequency(missing), strict=True):
                self._idf[term] = _idf(self._size, frequency)

    def specificity(self, text: str) -> float:
        """How rare the rarest content word of a text is, 0 to about 1: idf over that of a word seen nowhere."""
        terms = self.content(text)
        if not terms:
            return 0.0
        self.learn(terms)
        size = self._size or 0
        return max(self._idf[term] for term in terms) / _idf(size, 0)

    def coverage(self, wanted: Terms, *texts: Terms) -> float:
        """Share of the idf mass of `wanted` that the texts hold together, 0 to 1."""
        # Sorted, since sums of floats depend on order and sets have none.
        weights = [(self.idf(term), any(term in text for text in texts)) for term in sorted(wanted)]
        total = sum(weight for weight, _ in weights)
        return sum(weight for weight, covered in weights if covered) / total if total else 0.0


def _idf(size: int, frequency: int) -> float:
    return math.log(1 + (size + 0.5) / (frequency + 0.5))
