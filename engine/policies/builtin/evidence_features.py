"""Features of passages for the learned ranking: what the rules look at, and how passages hang together.

A passage late in a chain shares few words with the question. What marks it is that it names something specific that an
earlier passage brought up, so most features here are about names: bridges that rewrites put in, and names that the best
passages hold. Cosines are put on the scale of their search, since embedders differ in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thresher.engine.policies.builtin.lexical import Lexical
from thresher.engine.policies.builtin.links import fold
from thresher.engine.policies.builtin.passages import Passage, Passages
from thresher.engine.policies.builtin.ranking import (
    COVERED,
    SHARPNESS,
    Clause,
    RankWeights,
    reciprocal_rank,
    score,
    trust,
)
from thresher.engine.policies.builtin.rewriting import State
from thresher.engine.policies.builtin.weights import FEATURES, Floats, Kind

LEADERS = 8
"""Passages, best by the rules, whose names are looked for in the others."""
LEADER_DECAY = 0.5
SPECIFIC = 0.35
"""Names less rare than this ("American", "2015") link nothing."""
SOFT = 3.0
PRIOR_SHARE = 0.5
MOST_TURNS = 4
MOST_REPEATS = 3
LONG = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class RankInputs:
    """What is known when passages are ranked; `base` and `fits` are what `ranking.features` and `match` gave."""

    question: str
    vector: Floats
    clauses: Sequence[Clause]
    states: Sequence[State]
    passages: Passages
    base: Floats
    fits: Floats


def rank_table(found: RankInputs, lexical: Lexical) -> Floats:
    """Shape (passages, features), columns in the order of `FEATURES[Kind.RANK]`."""
    passages = found.passages.all
    rules = score(found.base, RankWeights())
    columns: dict[str, Floats] = {"rules": rules - rules.max()}
    columns.update(zip(FEATURES[Kind.RANK][1:8], found.base.T, strict=True))
    columns |= _of_question(found, lexical)
    columns |= _of_rewrites(found, lexical)
    columns |= _of_sightings(found)
    columns |= _of_links(found, rules, lexical)
    columns["length"] = np.array([np.log1p(len(passage.text)) / LONG for passage in passages])
    columns["repeat"] = _repeats(passages, rules)
    return np.stack([columns[name] for name in FEATURES[Kind.RANK]], axis=1)


def standard(values: Floats) -> Floats:
    """Deviations from the mean, in standard deviations; zeros where nothing deviates."""
    spread = values.std()
    return np.asarray((values - values.mean()) / spread if spread > 1e-9 else np.zeros_like(values))


def _of_question(found: RankInputs, lexical: Lexical) -> dict[str, Floats]:
    passages, matrix = found.passages.all, found.passages.matrix
    near = (matrix @ found.vector).astype(np.float64)
    columns = {"near": standard(near), "near_rank": reciprocal_rank(near)}
    names = ("near_clause", "covers_clause", "fits_clause", "title_anchor", "names_anchor")
    if not found.clauses:
        return columns | {name: np.zeros(len(passages)) for name in names}
    cosines = (np.stack([clause.vector for clause in found.clauses]) @ matrix.T).astype(np.float64)
    wanted = [lexical.content(clause.text) for clause in found.clauses]
    covered = np.array([[lexical.coverage(part, passage.terms) for passage in passages] for part in wanted])
    anchors = list(dict.fromkeys(fold(clause.anchor) for clause in found.clauses if clause.anchor))
    return columns | {
        "near_clause": standard(cosines.max(axis=0)),
        "covers_clause": covered.max(axis=0),
        "fits_clause": standard((cosines + COVERED * covered).max(axis=0)),
        "title_anchor": np.array([float(passage.folded_title in anchors) for passage in passages]),
        "names_anchor": np.array([float(sum(p.names(anchor) for anchor in anchors)) for p in passages]),
    }


def _of_rewrites(found: RankInputs, lexical: Lexical) -> dict[str, Floats]:
    """How rewrites point at passages: by fit, by the bridge in its title or text, by what the bridge leaves over."""
    passages, states, fits = found.passages.all, found.states, found.fits
    names = (
        "bridge_title bridge_named best_fit trusted_fit trusted_rank chain near_rewrite top_rewrite residual "
        "specific_named specific_residual specific_title bridges"
    ).split()
    columns = {name: np.zeros(len(passages)) for name in names}
    if not states:
        return columns
    trusted = trust(states, fits)
    sharp, soft = np.exp(SHARPNESS * (trusted - trusted.max())), np.exp(SOFT * (trusted - trusted.max()))
    weighed = (fits + PRIOR_SHARE * np.array([[state.prior] for state in states])).max(axis=0)
    cosines = (np.stack([state.vector for state in states]) @ found.passages.matrix.T).astype(np.float64)
    columns["best_fit"] = standard(fits.max(axis=0))
    columns["trusted_fit"] = weighed - weighed.max()
    columns["trusted_rank"] = reciprocal_rank(weighed)
    columns["near_rewrite"] = standard(cosines.max(axis=0))
    columns["top_rewrite"] = (sharp[:, None] * reciprocal_rank(fits)).max(axis=0)
    position = {passage.id: j for j, passage in enumerate(passages)}
    counted: set[str] = set()
    for i, state in enumerate(states):
        bridge, rare = fold(state.bridge), lexical.specificity(state.bridge)
        left = lexical.content(state.text) - lexical.terms(state.bridge)
        for source in state.chain:
            columns["chain"][position[source]] += sharp[i]
        for j, passage in enumerate(passages):
            if passage.id in state.chain or not passage.names(bridge):
                continue
            rest = lexical.coverage(left, passage.terms)
            titled = passage.folded_title == bridge
            for name, value in (
                ("bridge_named", sharp[i]),
                ("bridge_title", sharp[i] * titled),
                ("residual", sharp[i] * rest),
                ("specific_named", rare * soft[i]),
                ("specific_residual", rare * soft[i] * rest),
                ("specific_title", rare * soft[i] * titled),
            ):
                columns[name][j] = max(columns[name][j], value)
            if bridge not in counted:
                columns["bridges"][j] += rare
        counted.add(bridge)
    columns["chain"] = np.log1p(columns["chain"])
    columns["bridges"] = np.log1p(columns["bridges"])
    return columns


def _of_sightings(found: RankInputs) -> dict[str, Floats]:
    """How the queries of the search ranked each passage."""
    position = {passage.id: j for j, passage in enumerate(found.passages.all)}
    count = len(position)
    names = "queries firsts firsts_of_three best_rank rank_sum question_rank dense_share bm25_share".split()
    columns = {name: np.zeros(count) for name in names}
    first = np.full(count, float(MOST_TURNS))
    for looked in found.passages.looked:
        most_bm25 = max((s.bm25 or 0.0 for s in looked.sightings), default=0.0) or 1.0
        most_dense = max((s.dense or 0.0 for s in looked.sightings), default=0.0)
        for sighting in looked.sightings:
            j = position.get(sighting.evidence_id)
            if j is None:
                continue
            reciprocal = 1.0 / (1.0 + sighting.rank)
            columns["queries"][j] += 1
            columns["firsts"][j] += sighting.rank == 0
            columns["firsts_of_three"][j] += sighting.rank < 3
            columns["rank_sum"][j] += reciprocal
            columns["best_rank"][j] = max(columns["best_rank"][j], reciprocal)
            if looked.query == found.question:
                columns["question_rank"][j] = max(columns["question_rank"][j], reciprocal)
            dense = 0.0 if sighting.dense is None else 1.0 + sighting.dense - most_dense
            columns["dense_share"][j] = max(columns["dense_share"][j], dense)
            columns["bm25_share"][j] = max(columns["bm25_share"][j], (sighting.bm25 or 0.0) / most_bm25)
            first[j] = min(first[j], looked.turn)
    columns["query_share"] = columns["queries"] / max(1, len(found.passages.looked))
    for name in ("queries", "firsts", "firsts_of_three", "rank_sum"):
        columns[name] = np.log1p(columns[name])
    return columns | {"first_turn": first - 1.0}


def _of_links(found: RankInputs, rules: Floats, lexical: Lexical) -> dict[str, Floats]:
    """What the best passages and the others say of each other: titles, specific names, nearness."""
    passages, matrix = found.passages.all, found.passages.matrix
    columns = {name: np.zeros(len(passages)) for name in ("link_in", "link_out", "entity_link", "entity_covered")}
    leaders = np.argsort(-rules, kind="stable")[:LEADERS].tolist()
    weights = np.exp(LEADER_DECAY * (rules[leaders] - rules.max()))
    near = (matrix @ matrix[leaders].T).astype(np.float64)
    names = _leading_names(found.question, [passages[k] for k in leaders], lexical)
    holders: dict[str, list[int]] = {}
    coverage = found.base[:, 0]
    for place, (k, weight) in enumerate(zip(leaders, weights.tolist(), strict=True)):
        leader = passages[k]
        others = np.array([passage.document_id != leader.document_id for passage in passages])
        near[~others, place] = 0.0
        title = leader.folded_title
        for j in np.flatnonzero(others).tolist():
            other = passages[j]
            if len(other.folded_title) > 5 and leader.names(other.folded_title):
                columns["link_in"][j] = max(columns["link_in"][j], weight)
            if len(title) > 5 and other.names(title):
                columns["link_out"][j] = max(columns["link_out"][j], weight)
        for name, rare in names[leader.id]:
            if name not in holders:
                holders[name] = [j for j, passage in enumerate(passages) if name in passage.folded]
            for j in holders[name]:
                if others[j]:
                    columns["entity_link"][j] = max(columns["entity_link"][j], rare * weight)
    columns["entity_covered"] = columns["entity_link"] * coverage
    return columns | {"similar": standard(near.max(axis=1))}


def _leading_names(question: str, leaders: Sequence[Passage], lexical: Lexical) -> dict[str, list[tuple[str, float]]]:
    """Specific names of passages that the question does not hold, folded, with how rare they are."""
    asked = fold(question)
    kept = {
        leader.id: [e for e in leader.entities if len(e.folded) > 5 and e.folded not in asked] for leader in leaders
    }
    lexical.learn(term for entities in kept.values() for entity in entities for term in lexical.content(entity.name))
    return {
        key: [(e.folded, rare) for e in entities if (rare := lexical.specificity(e.name)) > SPECIFIC]
        for key, entities in kept.items()
    }


def _repeats(passages: Sequence[Passage], rules: Floats) -> Floats:
    """How many passages of the same document the rules put before each."""
    before: dict[str, int] = {}
    repeats = np.zeros(len(passages))
    for j in np.argsort(-rules, kind="stable").tolist():
        document = passages[j].document_id
        repeats[j] = min(before.get(document, 0), MOST_REPEATS)
        before[document] = before.get(document, 0) + 1
    return repeats
