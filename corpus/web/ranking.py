"""Which passages of a few fetched pages speak to a question: cosine and shared terms, fused by rank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder, embedding_input
from thresher.corpus.retrieval.fusion import reciprocal_rank_fusion
from thresher.corpus.web.reading import ReadPage

EMBEDDED = 96
"""Passages that are embedded for one question: the ones that share most with it, as embedding is what takes time."""
PER_PAGE = 3
"""Passages of one page that are given before those of others have had their turn."""

Analyze = Callable[[str], list[str]]
"""The terms of a text, each once."""


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """Passage `index` of a page, and its score on the scale of reciprocal rank fusion."""

    page: ReadPage
    index: int
    score: float
    dense: float

    @property
    def text(self) -> str:
        """The passage, verbatim."""
        span = self.page.spans[self.index]
        return self.page.text[span.start : span.end]


def rank_passages(
    query: str, pages: Sequence[ReadPage], embedder: Embedder, query_vector: Vectors, analyze: Analyze
) -> list[RankedPassage]:
    """The passages of the pages, best first. CPU-bound: call it in a thread.

    Args:
        query_vector: the question's unit vector by the same embedder, shape (dimension,).

    Raises:
        EmbedderError: the passages cannot be embedded.
    """
    places = [(page, index) for page in pages for index in range(len(page.spans))]
    if not places:
        return []
    texts = [page.text[page.spans[index].start : page.spans[index].end] for page, index in places]
    titles = [page.title for page, _ in places]
    terms = [analyze(f"{title}\n{text}") for title, text in zip(titles, texts, strict=True)]
    lexical = _by_terms(analyze(query), terms)
    # The first passage of each page says what it is about; the rest is chosen by the words it shares.
    chosen = sorted(range(len(places)), key=lambda i: (-lexical[i], places[i][1]))[:EMBEDDED]
    vectors = embedder.embed_passages([embedding_input(titles[i], texts[i]) for i in chosen])
    cosine = np.asarray(vectors) @ query_vector
    by_cosine = [chosen[i] for i in np.argsort(-cosine, kind="stable")]
    by_terms = [i for i in chosen if lexical[i] > 0]
    near = dict(zip(chosen, cosine.tolist(), strict=True))
    fused = reciprocal_rank_fusion([by_cosine, by_terms])
    return _taking_turns([RankedPassage(*places[i], score=score, dense=near[i]) for i, score in fused])


def _by_terms(asked: Sequence[str], passages: Sequence[Sequence[str]]) -> list[float]:
    """Σ of the asked terms' idf among these passages that each holds, damped by its length."""
    frequency = Counter(term for terms in passages for term in terms)
    weight = {term: math.log(1 + (len(passages) - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}
    mean = max(1.0, sum(map(len, passages)) / len(passages))
    return [
        sum(weight[term] for term in set(asked).intersection(terms)) / (0.7 + 0.3 * len(terms) / mean)
        for terms in passages
    ]


def _taking_turns(passages: Sequence[RankedPassage]) -> list[RankedPassage]:
    """No page crowds out the others: what it has beyond its share stands behind what others have within theirs."""
    counts: Counter[str] = Counter()
    within: list[RankedPassage] = []
    beyond: list[RankedPassage] = []
    for passage in passages:
        counts[passage.page.url] += 1
        (within if counts[passage.page.url] <= PER_PAGE else beyond).append(passage)
    return within + beyond
