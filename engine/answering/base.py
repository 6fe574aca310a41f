"""What writes answers, and the check that each answer passes before anybody sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thresher.context import Citation, Evidence, EvidenceError, EvidenceStore, unescape
from thresher.engine.policies.builtin.questions import FUNCTION
from thresher.engine.requests import Answer, RankedEvidence
from thresher.engine.tokenizers import valid_unicode

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that a draft says stand in a piece of evidence. Nothing is taken at its word: see `check`."""

    evidence_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of an answer, with the quotes it rests on."""

    text: str
    quotes: tuple[Quote, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer before it is checked.

    Attributes:
        claims: in reading order; none is an abstention.
        abstained: why there are none, in words for the caller.
        prompt_tokens, completion_tokens: what the model server counted, 0 without a model.
        seconds: time spent in the model.
        recoveries: requests that had to be made again in another way.
        warnings: what went wrong without costing the answer.
    """

    claims: tuple[Claim, ...] = ()
    abstained: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    recoveries: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Basis:
    """What an answer may be made of.

    Attributes:
        results: the returned evidence, best first.
        sufficient: the policy's word on it; None if it never said. `False` never gets here.
    """

    question: str
    results: tuple[RankedEvidence, ...]
    sufficient: bool | None


class Answerer(Protocol):
    """Writes an answer from returned evidence."""

    async def answer(self, basis: Basis) -> Draft:
        """A draft. Raises `PolicyError` when its model cannot be asked."""


def evidence_store(results: Sequence[RankedEvidence]) -> EvidenceStore:
    """A store of the returned evidence alone: nothing else can be cited."""
    store = EvidenceStore()
    for rank, result in enumerate(results):
        store.add(
            Evidence(
                id=result.id,
                key=result.id,  # chunk ids are those of a collection, and results may come from several
                chunk_id=result.chunk_id,
                document_id=result.document_id,
                uri=result.uri,
                title=result.title,
                text=result.text,
                start=result.start,
                end=result.end,
                metadata=result.metadata,
                source=result.source,
                score=result.score,
                rank=rank,
                agent=result.agent,
            )
        )
    return store


def check(draft: Draft, store: EvidenceStore) -> Answer:
    """The part of a draft that stands on quotes which are in the evidence, byte for byte.

    A quote of unknown evidence, that is not there, or that says nothing, is dropped and counted; a claim that loses all
    its quotes goes with them. What is left without any citation is withheld.
    """
    if not draft.claims:
        return Answer("", withheld_reason=draft.abstained or "no answer was found in the evidence")
    texts: list[str] = []
    citations: dict[Citation, None] = {}
    refused = 0
    for claim in draft.claims:
        held = [citation for quote in claim.quotes if (citation := _cited(quote, store)) is not None]
        refused += len(claim.quotes) - len(held)
        if held and claim.text.strip():
            texts.append(valid_unicode(claim.text.strip()))
            citations.update(dict.fromkeys(held))
    if not texts:
        reason = "the answer was withheld: none of its statements is backed by a quote that stands in the evidence"
        return Answer("", withheld_reason=reason, refused_citations=refused)
    return Answer(" ".join(texts), tuple(citations), refused_citations=refused)


def _cited(quote: Quote, store: EvidenceStore) -> Citation | None:
    """The citation of a quote; a model saw the text escaped, so it may quote it so."""
    for text in dict.fromkeys((quote.text, unescape(quote.text))):
        try:
            if _says_something(text):
                return store.cite(quote.evidence_id, text)
        except EvidenceError:
            continue
    return None


def _says_something(quote: str) -> bool:
    """Whether a quote holds a word of its own: "the" stands in every text and proves nothing."""
    return any(
        word.casefold() not in FUNCTION and (len(word) > 1 or not word.isascii()) for word in _WORD.findall(quote)
    )


def withheld(reason: str) -> Answer:
    """No answer, and why."""
    return Answer("", withheld_reason=reason)
