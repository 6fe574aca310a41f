"""The evidence store: everything ever shown to the policy in a search, kept outside the context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


class EvidenceError(Exception):
    """An id that was never shown, or a quote that the evidence does not hold."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A chunk as it was shown. `start` and `end` are character offsets of `text` in the document.

    Attributes:
        id: issued by the engine (`c1`, `c2`, … unless the profile says otherwise); the handle that the policy prunes,
            cites and returns.
        key: identity of the chunk across queries; a chunk gets one evidence id however often it returns.
        query: the query or pattern that first surfaced it.
        score: its score in that query's ranking; `dense` and `bm25` are the parts it was fused from.
        rank: its place in that query's full ranking, from 0.
        rerank: what a reranker gave it there; None if none read it.
        duplicates: chunk ids that were left out there, because nearly all they say stands in this one.
        source: `corpus` or `web`, or what a tool of one's own calls its source.
        turn: the turn in which it was first shown, from 1; 0 in a search without turns.
        agent: the sub-agent that found it; "" for the search itself.
    """

    id: str
    key: str
    chunk_id: str
    document_id: str
    uri: str
    title: str
    text: str
    start: int
    end: int
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    source: str = "corpus"
    query: str = ""
    turn: int = 0
    score: float = 0.0
    dense: float | None = None
    bm25: float | None = None
    rank: int = 0
    rerank: float | None = None
    duplicates: tuple[str, ...] = ()
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote that was checked: `text` equals the stored text between the document offsets, byte for byte."""

    evidence_id: str
    document_id: str
    uri: str
    start: int
    end: int
    text: str


class EvidenceStore:
    """Append-only. Edits of the context never touch it."""

    def __init__(self) -> None:
        self._by_id: dict[str, Evidence] = {}
        self._by_key: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self._by_id.values())

    def __contains__(self, evidence_id: object) -> bool:
        return evidence_id in self._by_id

    def newest(self, count: int) -> list[Evidence]:
        """The last `count`, the newest first."""
        return [evidence for _, evidence in zip(range(count), reversed(self._by_id.values()), strict=False)]

    def next_id(self) -> str:
        """The id that the next new chunk gets, where a profile has no other way to issue them."""
        return f"c{len(self._by_id) + 1}"

    def add(self, evidence: Evidence) -> Evidence:
        """Keep a chunk for good.

        Raises:
            ValueError: its id is empty, its id or key is known already, or its offsets do not fit its text.
        """
        if not evidence.id or evidence.id in self._by_id:
            raise ValueError(f"evidence id {evidence.id!r} is taken or empty; the next one is {self.next_id()}")
        if evidence.key in self._by_key:
            raise ValueError(f"chunk {evidence.key} is already stored as {self._by_key[evidence.key]}")
        if evidence.end - evidence.start != len(evidence.text):
            raise ValueError(f"offsets {evidence.start}..{evidence.end} do not fit {len(evidence.text)} characters")
        self._by_id[evidence.id] = evidence
        self._by_key[evidence.key] = evidence.id
        return evidence

    def get(self, evidence_id: str) -> Evidence:
        """The evidence under an id that was shown.

        Raises:
            EvidenceError: no such id was.
        """
        try:
            return self._by_id[evidence_id]
        except KeyError:
            raise EvidenceError(f"evidence {evidence_id!r} was never shown in this search") from None

    def find(self, key: str) -> Evidence | None:
        """The evidence of a chunk that was shown before."""
        evidence_id = self._by_key.get(key)
        return None if evidence_id is None else self._by_id[evidence_id]

    def cite(self, evidence_id: str, quote: str | None = None) -> Citation:
        """A checked citation of a quote, at its first place in the chunk; None cites the whole chunk.

        Raises:
            EvidenceError: no such id was shown, or the quote is empty or not in it.
        """
        evidence = self.get(evidence_id)
        offset = 0 if quote is None else evidence.text.find(quote)
        if offset < 0 or quote == "":
            raise EvidenceError(f"the quoted text does not occur in evidence {evidence_id}")
        text = evidence.text if quote is None else quote
        start = evidence.start + offset
        return Citation(evidence.id, evidence.document_id, evidence.uri, start, start + len(text), text)
