"""Answers without a model: the sentences of the evidence that say most of what the question asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.answering.base import Basis, Claim, Draft, Quote
from thresher.engine.policies.builtin.lexical import Corpus, Lexical, Terms
from thresher.engine.policies.builtin.links import sentences
from thresher.engine.policies.builtin.stopping import THRESHOLD, judge

SENTENCES = 3
DEPTH = 5
"""Results whose sentences are weighed; further down there is little that answers, and much that looks like it."""
SENTENCE_CHARACTERS = 600
"""What is longer is no sentence: a table, a list, a page without full stops."""
TOLD_BONUS, RANK_COST = 0.3, 0.06
"""For a sentence that the policy itself quoted, and for each place further down the list."""
LEAST = 0.2
"""A sentence that adds less than this to what is said is left out."""


@dataclass(frozen=True, eq=False)
class _Sentence:
    id: str
    place: int
    number: int
    text: str
    terms: Terms
    told: bool


class ExtractiveAnswerer:
    """Quotes up to three sentences. It never puts anything in words of its own."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    async def answer(self, basis: Basis) -> Draft:
        """The best sentences in order of the list, each a claim that quotes itself."""
        return await asyncio.to_thread(self._answer, basis)

    def _answer(self, basis: Basis) -> Draft:
        lexical = Lexical(self._corpus)
        found = _sentences(basis, lexical)
        if not found:
            return Draft(abstained="the evidence holds no sentence that could be quoted")
        question, *vectors = self._corpus.query_vectors([basis.question, *(s.text for s in found)])
        if basis.sufficient is None and not self._covered(basis, question, lexical):
            return Draft(abstained="the evidence does not seem to cover the question, and no policy said that it does")
        picked = _pick(basis, found, np.stack(vectors) @ question, lexical)
        if not picked:
            return Draft(abstained="no sentence of the evidence speaks to the question")
        picked.sort(key=lambda sentence: (sentence.place, sentence.number))
        return Draft(tuple(Claim(s.text, (Quote(s.id, s.text),)) for s in picked))

    def _covered(self, basis: Basis, question: Vectors, lexical: Lexical) -> bool:
        """The builtin policy's own test, for searches in which no policy gave its word."""
        from thresher.engine.policies.builtin.passages import Passage

        texts = [f"{result.title}\n{result.text}" for result in basis.results]
        vectors = self._corpus.query_vectors(texts)
        ranked = [
            Passage(r.id, r.document_id, r.title, r.text, vector, lexical.terms(text))
            for r, text, vector in zip(basis.results, texts, vectors, strict=True)
        ]
        return judge(basis.question, question, ranked, 0.0, lexical).score >= THRESHOLD


def _sentences(basis: Basis, lexical: Lexical) -> list[_Sentence]:
    """The sentences of the first results, each once."""
    found: dict[str, _Sentence] = {}
    for place, result in enumerate(basis.results[:DEPTH]):
        told = [span.text for span in result.spans]
        for number, raw in enumerate(sentences(result.text)):
            text = raw.strip()
            if text and len(text) <= SENTENCE_CHARACTERS and text not in found:
                # The title says what "it" is.
                terms = lexical.content(f"{result.title}\n{text}")
                said = any(text in quote or quote in text for quote in told)
                found[text] = _Sentence(result.id, place, number, text, terms, said)
    return list(found.values())


def _pick(basis: Basis, found: Sequence[_Sentence], near: Vectors, lexical: Lexical) -> list[_Sentence]:
    """Greedily the sentence that adds most: words of the question not said yet, and nearness to it."""
    wanted = lexical.content(basis.question)
    said: Terms = frozenset()
    picked: list[_Sentence] = []
    left = list(range(len(found)))
    while left and len(picked) < SENTENCES:
        before = lexical.coverage(wanted, said)

        def worth(i: int, before: float = before, said: Terms = said) -> float:
            sentence = found[i]
            gain = lexical.coverage(wanted, said, sentence.terms) - before
            return gain + float(near[i]) * 0.5 + TOLD_BONUS * sentence.told - RANK_COST * sentence.place

        best = max(left, key=lambda i: (worth(i), -i))
        gained = lexical.coverage(wanted, said, found[best].terms) - before
        if picked and gained < LEAST and not found[best].told:
            break
        if not picked and not (gained > 0 or found[best].told):
            break
        left.remove(best)
        picked.append(found[best])
        said |= found[best].terms
    return picked
