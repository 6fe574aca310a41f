"""Ranking of everything seen: a linear score over how the question, its clauses and its rewrites match a passage.

Rewrites are guesses. Each is weighed by its prior plus its best match in the evidence: searching is the verification.
Passages gain by answering a trusted rewrite, and by being the parent that its bridge was read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.lexical import Lexical
from thresher.engine.policies.builtin.links import fold
from thresher.engine.policies.builtin.passages import Passage, Passages
from thresher.engine.policies.builtin.rewriting import State
from thresher.engine.policies.builtin.weights import Floats

NAMED, COVERED, SHARPNESS = 0.15, 0.4, 6.0
ANCHORED = 0.3
FUSED_SCALE = 30.0
NEAR_TOP = 0.3


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of the question that was searched by itself, and the name it stands on ("" for none)."""

    text: str
    anchor: str
    vector: Vectors


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Weights of the features, in the order in which `features` gives them.

    Logistic regression over the passages of 401 questions on five kinds of corpora (two multi-hop sets over an
    encyclopedia, their training splits, counted twice; half of a news, a chat and an e-mail set). Fitted on the first
    two alone, the ranking is a point better there, and worse than a plain search on news and chat.

    Attributes:
        coverage: idf share of the question's words that the passage holds.
        titled: whether the question names the passage's title.
        clause: reciprocal rank under the best-fitting clause; `rewrite`: under the best-fitting rewrite.
        parent: trust in the best rewrite whose bridge was read from the passage.
        hits: log of how many rewrites rank it in their first three.
        fused: the best fused score that any query gave it.
    """

    coverage: float = 5.42
    titled: float = 1.62
    clause: float = 1.32
    rewrite: float = 0.32
    parent: float = 1.83
    hits: float = 0.33
    fused: float = 3.73


Memo = dict[State, tuple[list[float], list[float]]]
"""For each rewrite what `match` adds to the cosines of the passages so far: for its words, and for its bridge."""


def match(states: Sequence[State], passages: Passages, lexical: Lexical, memo: Memo | None = None) -> Floats:
    """How rewrites and passages fit, shape (rewrites, passages).

    Cosine, and more where the passage names the bridge and covers the rewrite's words. `memo` keeps what is slow to
    tell between calls of one search, whose passages only become more.
    """
    if not states:
        return np.zeros((0, len(passages)))
    memo = {} if memo is None else memo
    fits = (np.stack([state.vector for state in states]) @ passages.matrix.T).astype(np.float64)
    for i, state in enumerate(states):
        covered, named = memo.setdefault(state, ([], []))
        if len(covered) < len(passages):
            bridge, wanted = fold(state.bridge), lexical.content(state.text)
            for passage in passages.all[len(covered) :]:
                own = passage.id in state.chain  # the source of a bridge cannot confirm it
                covered.append(-np.inf if own else COVERED * lexical.coverage(wanted, passage.terms))
                named.append(NAMED * passage.names(bridge))
        fits[i] += covered
        fits[i, np.isneginf(fits[i])] = 0.0
        fits[i] += named
    return fits


def trust(states: Sequence[State], fits: Floats) -> Floats:
    """Prior of each rewrite plus its best match, shape (rewrites,): searching is what verifies a guess."""
    return np.asarray(np.array([state.prior for state in states]) + fits.max(axis=1))


def reciprocal_rank(scores: Floats) -> Floats:
    """1 / (1 + rank) along the last axis, rank from 0; ties by position."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    return np.asarray(1.0 / (1.0 + np.argsort(order, axis=-1, kind="stable")))


def features(
    question: str,
    clauses: Sequence[Clause],
    states: Sequence[State],
    fits: Floats,
    passages: Passages,
    lexical: Lexical,
) -> Floats:
    """Shape (passages, 7), columns in the order of `RankWeights`; `fits` is what `match` gave for the states."""
    wanted, asked = lexical.content(question), fold(question)
    zero = np.zeros(len(passages))
    coverage = np.array([lexical.coverage(wanted, p.terms) for p in passages.all])
    titled = np.array([float(len(p.folded_title) > 4 and p.folded_title in asked) for p in passages.all])
    fused = np.array([FUSED_SCALE * passages.fused(p) for p in passages.all])
    clause = zero
    if clauses:
        near = (np.stack([c.vector for c in clauses]) @ passages.matrix.T).astype(np.float64)
        anchors = [fold(c.anchor) for c in clauses]
        near += ANCHORED * np.array([[float(p.names(anchor)) for p in passages.all] for anchor in anchors])
        clause = reciprocal_rank(near).max(axis=0)
    rewrite = hits = zero
    parent = zero.copy()
    if states:
        rank = reciprocal_rank(fits)
        rewrite = rank.max(axis=0)
        hits = np.log1p((rank >= NEAR_TOP).sum(axis=0))
        trusted = trust(states, fits)
        trusted = np.exp(SHARPNESS * (trusted - trusted.max()))
        position = {passage.id: j for j, passage in enumerate(passages.all)}
        for state, weight in zip(states, trusted.tolist(), strict=True):
            for source in state.chain:
                parent[position[source]] = max(parent[position[source]], weight)
    return np.stack([coverage, titled, clause, rewrite, parent, hits, fused], axis=1)


def spread(passages: Sequence[Passage], scores: Sequence[float], discount: float) -> list[Passage]:
    """Best first, each further passage of one document taken down by `discount` more than the one before.

    A chain of evidence runs through several documents; without this a long document that fits the question well
    fills the list with its neighbours.
    """
    waiting = sorted(range(len(passages)), key=lambda j: (-scores[j], j))
    taken: dict[str, int] = {}
    adjusted = []
    for j in waiting:
        document = passages[j].document_id
        adjusted.append((scores[j] - discount * taken.get(document, 0), -j))
        taken[document] = taken.get(document, 0) + 1
    return [passages[-j] for _, j in sorted(adjusted, reverse=True)]


def score(table: Floats, weights: RankWeights) -> Floats:
    """Linear score of each passage, shape (passages,); comparable within one search only."""
    return np.asarray(table @ np.array(astuple(weights)), dtype=np.float64)
