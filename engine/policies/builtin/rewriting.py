"""One hop: read candidates for a slot of the question out of a passage, and put them in its place.

"What is the waterfall in the country where the Bubye River is found?" and a passage on the Bubye River that names
Zimbabwe give "What is the waterfall in Zimbabwe?". The next search is the test of the guess: a right bridge finds a
passage that answers what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.choosing import Choices, first_of_each
from thresher.engine.policies.builtin.lexical import Lexical
from thresher.engine.policies.builtin.links import Entity, fold
from thresher.engine.policies.builtin.passages import Passage, Passages
from thresher.engine.policies.builtin.questions import Slot, mentions, slots
from thresher.engine.policies.builtin.weights import FEATURES, Floats, Kind

Embed = Callable[[list[str]], Vectors]

TITLE_IS_ANCHOR, TEXT_NAMES_ANCHOR, NO_ANCHOR = 1.0, 0.6, 0.3
UNKNOWN_KIND = 0.2
FAR = 20
MOST_REPEATS = 3
_DATED = re.compile(r"\d|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b")


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """Weights and widths of one hop, tuned on training questions; results are flat around these values.

    Attributes:
        anchor: weight of a passage naming what the clause stands on, beside its cosine with the clause.
        kind: weight of the cosine between the slot's head noun and the candidate ("country" and "Zimbabwe").
        sentence: weight of how much of the clause the candidate's sentence covers.
        inherit: share of a state's prior that its children start from.
        position: cost of standing one name later in the passage.
        parents: passages read per slot.
        candidates: rewrites weighed; `rewrites`: those searched; `per_parent`: at most from one passage.
    """

    anchor: float = 0.3
    kind: float = 0.3
    sentence: float = 0.2
    inherit: float = 0.5
    position: float = 0.005
    parents: int = 4
    candidates: int = 32
    rewrites: int = 6
    per_parent: int = 4


@dataclass(frozen=True, eq=False)
class State:
    """A question with zero or more slots filled, the passages that filled them, and the last name put in."""

    text: str
    vector: Vectors
    prior: float = 0.0
    chain: tuple[str, ...] = ()
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    score: float
    text: str
    state: State
    slot: Slot
    passage: Passage
    entity: Entity
    fit: float = 0.0
    covered: float = 0.0
    alike: float = 0.0


class Rewriter:
    """Proposes the next questions to search. Remembers what was asked, so that nothing is asked twice."""

    def __init__(
        self, embed: Embed, lexical: Lexical, settings: RewriteSettings, choices: Choices | None = None
    ) -> None:
        self._embed_batch = embed
        self._lexical = lexical
        self._settings = settings
        self._vectors: dict[str, Vectors] = {}
        self._asked: set[str] = set()
        self._choices = choices
        self._used: set[str] = set()
        self._hop = 0

    def embed(self, texts: Iterable[str]) -> list[Vectors]:
        """Vectors of short strings; one batch for those not embedded before in this search."""
        wanted = list(texts)
        missing = list(dict.fromkeys(text for text in wanted if text not in self._vectors))
        if missing:
            self._vectors.update(zip(missing, self._embed_batch(missing), strict=True))
        return [self._vectors[text] for text in wanted]

    def asked(self, text: str) -> None:
        """Remember a text as searched."""
        self._asked.add(fold(text))

    def propose(self, frontier: Iterable[State], passages: Passages) -> list[State]:
        """The best rewrites of the frontier that were not asked before, best first; learned choices, if there are."""
        weighed = self._by_kind(self._candidates(list(frontier), passages))
        parents: dict[str, int] = {}
        groups = [parents.setdefault(candidate.passage.id, len(parents)) for candidate in weighed]
        count, per_parent = self._settings.rewrites, self._settings.per_parent
        if self._choices is None:
            rows = first_of_each(range(len(weighed)), count, groups, per_parent)
        else:
            table = self._table(weighed, passages)
            rows = self._choices.order(Kind.QUERY, table, count, groups=groups, per_group=per_parent)
        picked = [weighed[row] for row in rows]
        self._used.update(fold(candidate.entity.name) for candidate in picked)
        self._hop += 1
        return [
            State(c.text, vector, c.score, (*c.state.chain, c.passage.id), c.entity.name)
            for c, vector in zip(picked, self.embed(c.text for c in picked), strict=True)
        ]

    def _candidates(self, frontier: list[State], passages: Passages) -> list[_Candidate]:
        """Distinct rewrites with their prior: how well the passage fits the slot, and the sentence the clause."""
        todo = [(s, slot) for s in frontier for slot in slots(s.text, mentions(s.text, question=True))]
        clauses = self.embed(slot.inner for _, slot in todo)
        found: list[_Candidate] = []
        for (state, slot), clause in zip(todo, clauses, strict=True):
            wanted = self._lexical.content(slot.inner)
            for fit, passage in self._parents(state, slot, clause, passages):
                found += self._from_passage(state, slot, wanted, fit, passage)
        found.sort(key=lambda candidate: -candidate.score)
        distinct: dict[str, _Candidate] = {}
        for candidate in found:
            if len(distinct) >= self._settings.candidates:
                break
            if fold(candidate.text) not in self._asked:
                distinct.setdefault(candidate.text, candidate)
        return list(distinct.values())

    def _from_passage(
        self, state: State, slot: Slot, wanted: frozenset[str], fit: float, passage: Passage
    ) -> Iterable[_Candidate]:
        asked_about, anchor = fold(state.text), fold(slot.anchor)
        for entity in passage.entities:
            if entity.folded in asked_about or (slot.anchor and anchor in entity.folded):
                continue
            sentence = self._lexical.terms(entity.sentence or passage.title)
            covered = self._lexical.coverage(wanted, sentence)
            score = (
                fit
                + self._settings.sentence * covered
                + self._settings.inherit * state.prior
                - self._settings.position * entity.position
            )
            text = state.text[: slot.span.start] + entity.name + state.text[slot.span.end :]
            yield _Candidate(score, text.strip(), state, slot, passage, entity, fit, covered)

    def _parents(self, state: State, slot: Slot, clause: Vectors, passages: Passages) -> list[tuple[float, Passage]]:
        """The passages most likely to hold a slot's answer: near its clause, naming its anchor."""
        anchor = fold(slot.anchor)
        scored: list[tuple[float, Passage]] = []
        for near, passage in zip((passages.matrix @ clause).tolist(), passages.all, strict=True):
            if passage.id in state.chain:
                continue
            if not slot.anchor:
                named = NO_ANCHOR
            elif passage.folded_title == anchor:
                named = TITLE_IS_ANCHOR
            else:
                named = TEXT_NAMES_ANCHOR if passage.names(anchor) else 0.0
            scored.append((near + self._settings.anchor * named, passage))
        scored.sort(key=lambda pair: -pair[0])
        return scored[: self._settings.parents]

    def _by_kind(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Add how much each name looks like what its slot asks for, and sort."""
        texts = [text for c in candidates for text in (c.slot.head, c.entity.name) if text]
        vectors = dict(zip(texts, self.embed(texts), strict=True))
        weighed = []
        for c in candidates:
            alike = float(np.dot(vectors[c.slot.head], vectors[c.entity.name])) if c.slot.head else UNKNOWN_KIND
            weighed.append(replace(c, score=c.score + self._settings.kind * alike, alike=alike))
        return sorted(weighed, key=lambda candidate: -candidate.score)

    def _table(self, weighed: Sequence[_Candidate], passages: Passages) -> Floats:
        """Features of rewrites, shape (rewrites, features), columns in the order of `FEATURES[Kind.QUERY]`."""
        self._lexical.learn(t for c in weighed for t in self._lexical.content(c.entity.name))
        best = max((c.score for c in weighed), default=0.0)
        most = max((passages.fused(c.passage) for c in weighed), default=0.0) or 1.0
        seen: dict[str, int] = {}
        known: dict[str, float] = {}
        rows = []
        for c in weighed:
            bridge = c.entity.folded
            if bridge not in known:
                known[bridge] = sum(passage.names(bridge) for passage in passages.all) / len(passages)
            rows.append(
                (
                    c.score - best,
                    c.fit,
                    c.alike,
                    c.covered,
                    c.state.prior,
                    min(c.entity.position, FAR) / FAR,
                    float(self._hop),
                    self._lexical.specificity(c.entity.name),
                    float(_DATED.search(c.entity.name) is not None),
                    float(bridge in self._used),
                    float(bool(c.slot.anchor)),
                    float(bool(c.slot.head)),
                    float(not c.entity.sentence),
                    passages.fused(c.passage) / most,
                    float(np.dot(c.passage.vector, c.state.vector)),
                    known[bridge],
                    float(min(seen.get(bridge, 0), MOST_REPEATS)),
                    (c.slot.span.end - c.slot.span.start) / max(1, len(c.state.text)),
                )
            )
            seen[bridge] = seen.get(bridge, 0) + 1
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURES[Kind.QUERY]))
