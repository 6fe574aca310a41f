"""How relevant texts are to a query: by the operator's reranker, or by meaning and words together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from thresher.api.http.doors.asking import squashed
from thresher.api.service.content.collections import shown_embedder
from thresher.corpus.chunker import chunk_text
from thresher.corpus.embedders import load_embedder
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.terms import make_analyzer, passage_terms, query_terms

if TYPE_CHECKING:
    from thresher.corpus.embedders import Embedder
    from thresher.corpus.retrieval.rerank import Reranker

MEANING = 0.4
"""Weight of the cosine; the rest is BM25's. Of 0 to 1, 0.3 to 0.5 ordered the passages of the sample corpus best."""

_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Scored:
    """A score in 0..1 for each text, in the order given, and what gave them, in words."""

    scores: list[float]
    method: str


@lru_cache(maxsize=2)
def shared_embedder(spec: str) -> Embedder:
    """The embedder of a spec, loaded once a process."""
    return load_embedder(spec)


def passages_of(text: str) -> list[str]:
    """The passages of a text, as a collection would cut it; a text without words is one, empty."""
    return [text[span.start : span.end] for span in chunk_text(text)] or [""]


def by_reranker(reranker: Reranker, query: str, documents: Sequence[Sequence[str]]) -> Scored:
    """The score of each document's best passage, by a model that reads it beside the query.

    Raises:
        RerankError: it could not.
    """
    raw = reranker.scores(query, [passage for passages in documents for passage in passages])
    return Scored(squashed(_best(raw, documents)), _shown(reranker.spec))


def by_meaning_and_words(embedder: Embedder, query: str, documents: Sequence[Sequence[str]]) -> Scored:
    """0.4 · the cosine of each document's best passage (0 where negative) + 0.6 · its BM25.

    BM25 is divided by the most that the query can get, so both lie in 0..1 whatever else is in the list; only the idf
    is the list's own.

    Raises:
        EmbedderError: it could not embed.
    """
    passages = [passage for document in documents for passage in document]
    cosines = embedder.embed_passages(passages) @ embedder.embed_queries([query])[0]
    words = _bm25(query, passages)
    raw = [
        MEANING * max(0.0, float(cosine)) + (1 - MEANING) * word for cosine, word in zip(cosines, words, strict=True)
    ]
    scores = [min(1.0, score) for score in _best(raw, documents)]
    return Scored(scores, f"cosine of {shown_embedder(embedder.info.spec)} and BM25")


def _shown(spec: str) -> str:
    """A reranker's spec without the address or the path in it, which are the operator's."""
    kind, _, rest = spec.partition(":")
    return f"{kind}:{PurePath(rest.partition('@')[0].partition('?')[0]).name}"


def _best(raw: Sequence[float], documents: Sequence[Sequence[str]]) -> list[float]:
    """The best score of each document's passages."""
    ends = np.cumsum([len(document) for document in documents]).tolist()
    return [max(raw[end - len(document) : end]) for end, document in zip(ends, documents, strict=True)]


def _bm25(query: str, passages: Sequence[str]) -> list[float]:
    """BM25 of each passage among these, divided by its upper bound for the query."""
    analyzer = make_analyzer()
    wanted = [term for _, term in query_terms(analyzer, query)]
    counts = []
    for passage in passages:
        fields = passage_terms(analyzer, Passage(0, "", passage))
        counts.append(Counter(term for terms in fields.values() for term in terms))
    lengths = [count.total() for count in counts]
    mean = sum(lengths) / len(lengths) or 1.0
    held = Counter(term for count in counts for term in count)
    idf = {term: math.log(1 + (len(counts) - held[term] + 0.5) / (held[term] + 0.5)) for term in wanted}
    bound = sum(idf.values()) * (_K1 + 1)
    if not bound:
        return [0.0] * len(counts)
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        soft = _K1 * (1 - _B + _B * length / mean)
        scores.append(sum(idf[t] * count[t] * (_K1 + 1) / (count[t] + soft) for t in wanted if count[t]) / bound)
    return scores
