"""BM25 as sparse vectors: what of the formula is fixed when a passage is written, and what the server adds.

A passage's vector holds, for each of its terms, BM25's term-frequency part, tf·(k1+1) / (tf + k1·(1 − b + b·len/avg))
(Robertson and Zaragoza, 2009). How rare a term is changes with every write, so that part is left to the server: an
index declared as `bm25` scales each query by ln(1 + (N − n + 0.5)/(n + 0.5)) over what it holds at that moment.
The average lengths are constants of a generation, taken from the first passages it is given.

The terms are those of our own analyzer rather than of Chroma's BM25 function, which splits Chinese, Japanese and Thai
nowhere and knows no titles; a passage is thus found by the same words whichever index serves.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.corpus.lexical.analyzer import BIGRAMS, STEMMED, TITLE
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.terms import TITLE_BOOST, passage_terms, query_terms

K1 = 1.2
B = 0.75

# Averages of ordinary passages, in terms, with the weight of this many passages: a first batch of three is no sample.
_USUAL = {STEMMED: 120.0, TITLE: 4.0, BIGRAMS: 400.0}
_USUAL_WEIGHT = 50

Sparse = tuple[list[int], list[float]]
"""(dimensions in ascending order, their values)."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Average number of terms by field, of the passages that have any."""

    text: float = _USUAL[STEMMED]
    title: float = _USUAL[TITLE]
    grams: float = _USUAL[BIGRAMS]

    def of(self, field: str) -> float:
        """The average of one field."""
        return {STEMMED: self.text, TITLE: self.title, BIGRAMS: self.grams}[field]


def measure(analyzer: Any, passages: Sequence[Passage]) -> Lengths:
    """The average lengths of passages."""
    totals = {field: [usual * _USUAL_WEIGHT, float(_USUAL_WEIGHT)] for field, usual in _USUAL.items()}
    for passage in passages:
        for field, terms in passage_terms(analyzer, passage).items():
            if terms:
                totals[field][0] += len(terms)
                totals[field][1] += 1
    return Lengths(*(round(totals[field][0] / totals[field][1], 3) for field in (STEMMED, TITLE, BIGRAMS)))


def passage_vector(analyzer: Any, passage: Passage, lengths: Lengths) -> Sparse:
    """The vector of a passage."""
    weights: dict[int, float] = {}
    for field, terms in passage_terms(analyzer, passage).items():
        damping = K1 * (1.0 - B + B * len(terms) / lengths.of(field))
        for term, count in Counter(terms).items():
            at = dimension(field, term)
            # Two terms on one dimension: the heavier stands for both.
            weights[at] = max(weights.get(at, 0.0), round(count * (K1 + 1.0) / (count + damping), 6))
    return _sorted(weights)


def query_vector(analyzer: Any, query: str) -> Sparse:
    """The vector of a query; its product with a passage's vector, scaled by rarity, is the BM25 score."""
    weights: dict[int, float] = {}
    for field, term in query_terms(analyzer, query):
        weights[dimension(field, term)] = 1.0
        if field == STEMMED:
            weights[dimension(TITLE, term)] = TITLE_BOOST
    return _sorted(weights)


def dimension(field: str, term: str) -> int:
    """Where a term stands: 31 bits of a hash, so that a million terms share 230 places among themselves."""
    digest = hashlib.blake2b(f"{field}\0{term}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def _sorted(weights: Mapping[int, float]) -> Sparse:
    indices = sorted(weights)
    return indices, [weights[i] for i in indices]
