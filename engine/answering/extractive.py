"""Answers without a model: the sentences of the evidence that say most of what the question asks for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.answering.base import Basis, Claim, Draft, Quote
from thresher.engine.policies.builtin.lexical import Corpus, Lexical, Terms
from thresher.engine.policies.builtin.links import sentences
from thresher.engine.policies.builtin.parts import independent_parts
from thresher.engine.policies.builtin.stopping import THRESHOLD, judge
from thresher.engine.requests import RankedEvidence

SENTENCES = 3
DEPTH = 5
"""Results whose sentences are weighed; further down there is little that answers, and much that looks like it."""
SENTENCE_CHARACTERS = 600
"""What is longer is no sentence: a table, a list, a page without full stops."""
TOLD_BONUS, RANK_COST = 0.3, 0.06
"""For a sentence that the policy itself quoted, and for each place further down the list."""
WHOLE_BONUS = 0.3
"""For a sentence with an end: records, captions and page footers have none."""
LEAST = 0.2
"""A sentence that adds less than this to what is said is left out."""
_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[#>|*+-]|\d+[.)])\s?)")
_HEADING = re.compile(r"#{1,6}\s|[=~-]{3,}$|\|")
"""A line that names or rules off what follows, or a row of a table."""


@dataclass(frozen=True, eq=False)
class _Sentence:
    id: str
    place: int
    number: int
    text: str
    terms: Terms
    told: bool

    @property
    def bonus(self) -> float:
        """What it is worth whatever is asked."""
        return TOLD_BONUS * self.told + WHOLE_BONUS * bool(_END.search(self.text))


class ExtractiveAnswerer:
    """Quotes up to three sentences, or one for each independent part. It puts nothing in words of its own."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    async def answer(self, basis: Basis) -> Draft:
        """The best sentences in order of the list, each a claim that quotes itself."""
        return await asyncio.to_thread(self._answer, basis)

    def _answer(self, basis: Basis) -> Draft:
        lexical = Lexical(self._corpus)
        parts = independent_parts(basis.question) or (basis.question,)
        alone = len(parts) == 1
        # The lists of several parts are dealt out like cards: how far down one stands says little then.
        found = _sentences(basis.results[:DEPTH] if alone else basis.results, lexical)
        if not found:
            return Draft(abstained="the evidence holds no sentence that could be quoted")
        asked = [basis.question, *parts]
        vectors = self._corpus.query_vectors([*asked, *(s.text for s in found)])
        question = vectors[0]
        if basis.sufficient is None and not self._covered(basis, question, lexical):
            return Draft(abstained="the evidence does not seem to cover the question, and no policy said that it does")
        most, rank_cost = (SENTENCES, RANK_COST) if alone else (1, 0.0)
        near: Vectors = np.array(vectors[len(asked) :])
        picked: dict[str, _Sentence] = {}
        for part, vector in zip(parts, vectors[1 : len(asked)], strict=True):
            chosen = _pick(part, found, near @ vector, lexical, most, rank_cost)
            picked.update((s.text, s) for s in sorted(chosen, key=lambda sentence: (sentence.place, sentence.number)))
        if not picked:
            return Draft(abstained="no sentence of the evidence speaks to the question")
        return Draft(tuple(Claim(" ".join(s.text.split()), (Quote(s.id, s.text),)) for s in picked.values()))

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


def _sentences(results: Sequence[RankedEvidence], lexical: Lexical) -> list[_Sentence]:
    """The sentences of the results, each once."""
    found: dict[str, _Sentence] = {}
    for place, result in enumerate(results):
        told = [span.text for span in result.spans]
        for number, text in enumerate(_said(result.text)):
            if len(text) <= SENTENCE_CHARACTERS and text not in found:
                # The title says what "it" is.
                terms = lexical.content(f"{result.title}\n{text}")
                said = any(text in quote or quote in text for quote in told)
                found[text] = _Sentence(result.id, place, number, text, terms, said)
    return list(found.values())


def _said(text: str) -> Iterator[str]:
    """The sentences of a passage, each an exact part of it, without headings and table rows."""
    for paragraph in _PARAGRAPH.split(text):
        if not _HEADING.match(paragraph.strip()):
            yield from filter(None, (sentence.strip() for sentence in sentences(paragraph)))


def _pick(
    question: str, found: Sequence[_Sentence], near: Vectors, lexical: Lexical, most: int, rank_cost: float
) -> list[_Sentence]:
    """Greedily the sentence that adds most: words of the question not said yet, and nearness to it."""
    wanted = lexical.content(question)
    said: Terms = frozenset()
    picked: list[_Sentence] = []
    left = list(range(len(found)))
    while left and len(picked) < most:
        before = lexical.coverage(wanted, said)

        def worth(i: int, before: float = before, said: Terms = said) -> float:
            sentence = found[i]
            gain = lexical.coverage(wanted, said, sentence.terms) - before
            return gain + float(near[i]) * 0.5 + sentence.bonus - rank_cost * sentence.place

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
