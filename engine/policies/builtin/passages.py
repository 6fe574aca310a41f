"""What the policy remembers of one search: every passage it was shown, in the forms that it compares."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thresher.context import Evidence
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import embedding_input
from thresher.engine.policies.builtin.lexical import Corpus, Lexical, Terms
from thresher.engine.policies.builtin.links import Entity, bare_title, entities, fold
from thresher.engine.policy import Observation, Sighting


@dataclass(frozen=True, eq=False)
class Passage:
    """A shown chunk, with its vector and its analyzed terms."""

    id: str
    document_id: str
    title: str
    text: str
    vector: Vectors
    terms: Terms

    @cached_property
    def folded(self) -> str:
        """Title and text, folded."""
        return fold(f"{self.title} . {self.text}")

    @cached_property
    def folded_title(self) -> str:
        """The title without its qualifier, folded."""
        return fold(bare_title(self.title))

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """The names it holds, its title first."""
        return entities(self.title, self.text)

    def names(self, folded: str) -> bool:
        """Whether a folded phrase stands in it as whole words."""
        return len(folded) > 2 and folded in self.folded


@dataclass(frozen=True, slots=True)
class Looked:
    """What one query of a turn ranked, as far as it is known here; `query` is its text."""

    turn: int
    query: str
    sightings: tuple[Sighting, ...]


class Passages:
    """Passages in order of arrival. Pruning the context never touches them."""

    def __init__(self, corpus: Corpus, lexical: Lexical) -> None:
        self._corpus = corpus
        self._lexical = lexical
        self._by_id: dict[str, Passage] = {}
        self._fused: dict[str, float] = {}
        self._matrix: Vectors | None = None
        self.looked: list[Looked] = []

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def all(self) -> list[Passage]:
        """Every passage, in order of arrival."""
        return list(self._by_id.values())

    @property
    def matrix(self) -> Vectors:
        """Vectors of all passages, shape (len(self), dimension)."""
        if self._matrix is None:
            self._matrix = np.stack([passage.vector for passage in self._by_id.values()])
        return self._matrix

    def fused(self, passage: Passage) -> float:
        """The best fused score that any query gave it."""
        return self._fused.get(passage.id, 0.0)

    def sight(self, observations: Iterable[Observation], turn: int) -> None:
        """Take up how the queries of a turn ranked what is known, shown again or not."""
        for observation in observations:
            if observation.sightings:
                self.looked.append(Looked(turn, _query(observation), observation.sightings))
            for sighting in observation.sightings:
                known = self._fused.get(sighting.evidence_id, 0.0)
                self._fused[sighting.evidence_id] = max(known, sighting.score)

    def learn(self, store: Iterable[Evidence]) -> int:
        """Take up evidence that is new; returns how much that was."""
        new = [evidence for evidence in store if evidence.id not in self._by_id]
        for evidence, vector in zip(new, self._vectors(new), strict=True):
            self._by_id[evidence.id] = Passage(
                id=evidence.id,
                document_id=evidence.document_id,
                title=evidence.title,
                text=evidence.text,
                vector=vector,
                terms=self._lexical.terms(f"{evidence.title}\n{evidence.text}"),
            )
            self._matrix = None
        return len(new)

    def _vectors(self, new: list[Evidence]) -> Iterable[Vectors]:
        """Stored vectors for corpus chunks; what has none (a web page, a chunk deleted meanwhile) is embedded."""
        if all(evidence.source == "corpus" for evidence in new):
            try:
                return self._corpus.vectors([int(evidence.chunk_id) for evidence in new])
            except KeyError:
                pass
        return self._corpus.query_vectors([embedding_input(evidence.title, evidence.text) for evidence in new])


def _query(observation: Observation) -> str:
    """The query of a search; "" for other calls."""
    try:
        query = json.loads(observation.call.arguments).get("query", "")
    except (ValueError, AttributeError):
        return ""
    return query if isinstance(query, str) else ""
