"""The builtin policy: an agent that needs no model server.

Its first turn searches the question and its clauses. Each further turn fills slots of the question with names read from
the evidence, prunes what the evidence has outgrown, and searches the rewritten questions. Its last turn ranks every
passage it was shown and says whether they look sufficient. It is deterministic.

The method is its own, from known parts: iterative retrieval by query rewriting, bridge entities as links between
passages (as in HippoRAG, Gutiérrez et al. 2024, without a model to extract them), and retrieval as the verification
of a guess. Rank weights were fitted on training splits only.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import numpy as np

from thresher.context import escape
from thresher.engine.policies.builtin.choosing import Choices, Drawing
from thresher.engine.policies.builtin.evidence_features import RankInputs, rank_table
from thresher.engine.policies.builtin.lexical import Corpus, Lexical
from thresher.engine.policies.builtin.links import sentences
from thresher.engine.policies.builtin.passages import Passage, Passages
from thresher.engine.policies.builtin.questions import mentions, slots
from thresher.engine.policies.builtin.ranking import (
    Clause,
    Memo,
    RankWeights,
    features,
    match,
    score,
    spread,
    trust,
)
from thresher.engine.policies.builtin.rewriting import Rewriter, RewriteSettings, State
from thresher.engine.policies.builtin.rollouts import varied_settings
from thresher.engine.policies.builtin.stopping import THRESHOLD, Verdict, judge
from thresher.engine.policies.builtin.weights import Floats, Kind
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import Effort, Strategy

HOPS = {Effort.LOW: 1, Effort.MEDIUM: 2, Effort.HIGH: 3}
"""Turns that follow bridges, after the first."""
TURN_OVERHEAD = 80
"""Tokens that a search takes beside its chunks: the call, the head of its observation, its share of the usage line."""

SEARCHES = ("search_corpus", "search_web")
JUSTIFICATION_CHARACTERS = 2_000
SENTENCE_CHARACTERS = 400
CHARACTERS_PER_TOKEN = 3
MANY_TURNS = 8
GOING_ON = 2.0
"""What the rules think of another hop where one is allowed: they always make it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Turns and widths.

    Attributes:
        clauses: parts of the question searched in the first turn, beside the question.
        frontier: rewrites that the next hop starts from.
        keep: chunks that stay in the context between turns.
        quotes: results for which the telling sentence is quoted.
        discount: what each further passage of one document costs it in the ranking.
    """

    clauses: int = 5
    frontier: int = 5
    keep: int = 10
    quotes: int = 3
    discount: float = 1.0
    rewriting: RewriteSettings = field(default_factory=RewriteSettings)
    weights: RankWeights = field(default_factory=RankWeights)


class BuiltinPolicy:
    """One search over one corpus.

    Args:
        choices: learned choices; without them it chooses by its hand-written rules.
    """

    name = "builtin"

    def __init__(self, corpus: Corpus, settings: Settings | None = None, choices: Choices | None = None) -> None:
        self._corpus = corpus
        self._settings = settings or Settings()
        self._choices = choices
        self._lexical = Lexical(corpus)
        self._rewriter = self._new_rewriter()
        self._clauses: list[Clause] = []
        self._states: list[State] = []
        self._latest: list[State] = []
        self._root: State | None = None
        self._passages: Passages | None = None
        self._memo: Memo = {}

    def _new_rewriter(self) -> Rewriter:
        return Rewriter(self._corpus.query_vectors, self._lexical, self._settings.rewriting, self._choices)

    def reseed(self, seed: int) -> None:
        """Search otherwise than the search's other rollouts, before the first turn; seed 0 changes nothing."""
        if self._choices is not None and isinstance(self._choices.chooser, Drawing):
            if seed:
                # In training what varies is what is drawn, so that the chance of each choice is known.
                self._choices = Choices(self._choices.weights, self._choices.chooser.reseeded(seed))
        else:
            self._settings = varied_settings(self._settings, seed)
        self._rewriter = self._new_rewriter()

    async def decide(self, view: View) -> Decision:
        """The next turn. Embedding and ranking run in a thread, so that other searches go on meanwhile."""
        return await asyncio.to_thread(self._decide, view)

    def _decide(self, view: View) -> Decision:
        if self._root is None or self._passages is None:
            self._passages = Passages(self._corpus, self._lexical)
            return self._open(view)
        fresh = self._passages.learn(view.store)
        self._passages.sight(view.observations, view.turn - 1)
        hops_done = view.turn - 2
        if not fresh or hops_done >= HOPS.get(view.effort, 0) or view.turns_left <= 1:
            return self._finish(view, self._root, self._passages)
        if self._choices is not None and not self._goes_on(view, fresh, self._choices):
            return self._finish(view, self._root, self._passages)
        return self._follow(view, self._root, self._passages) or self._finish(view, self._root, self._passages)

    def _open(self, view: View) -> Decision:
        """Search the question, and each clause of it that is not the question itself."""
        question = view.question
        whole = question.rstrip(" ?.")
        found = slots(question, mentions(question, question=True))
        parts = list(dict.fromkeys((s.inner, s.anchor) for s in found if s.inner.rstrip(" ?.") != whole))
        kinds = _search_tools(view)
        affordable = (view.budget.hard - view.prompt.tokens) // (view.budget.tool_output + TURN_OVERHEAD)
        parts = parts[: max(0, min(self._settings.clauses, affordable // len(kinds) - 1))]
        root, *vectors = self._rewriter.embed([question, *(text for text, _ in parts)])
        self._root = State(question, root)
        self._clauses = [Clause(text, anchor, v) for (text, anchor), v in zip(parts, vectors, strict=True)]
        self._rewriter.asked(question)
        queries = list(dict.fromkeys([question, *(text for text, _ in parts)]))
        reasoning = "Search the question itself"
        if len(queries) > 1:
            reasoning += f", and the parts it is made of: {'; '.join(queries[1:])}"
        return Decision(tuple(_search(kind, query) for query in queries for kind in kinds), f"{reasoning}.")

    def _follow(self, view: View, root: State, passages: Passages) -> Decision | None:
        """One hop: make room, and search the best rewrites that fit. None when there are none, or there is no room.

        Where it prunes it stays below the soft limit. Any other way to keep the context small begins to work past
        that, so there it goes on half the way to the hard limit, past which no search runs.
        """
        proposed = self._rewriter.propose(self._frontier(root, passages), passages)
        edits, freed = self._make_room(view, passages)
        kept = view.prompt.tokens - freed
        prunes = view.strategy is Strategy.PRUNE
        limit = view.budget.soft if prunes else (view.budget.soft + view.budget.hard) // 2
        kinds = _search_tools(view)
        affordable = (limit - kept) // (self._dearest_search(view) + TURN_OVERHEAD) // len(kinds)
        self._latest = proposed[: max(1 if prunes else 0, affordable)]
        if not self._latest:
            return None
        self._states += self._latest
        for state in self._latest:
            self._rewriter.asked(state.text)
        guesses = [f"{state.bridge} (from {state.chain[-1]})" for state in self._latest]
        calls = edits + [_search(kind, state.text) for state in self._latest for kind in kinds]
        return Decision(tuple(calls), f"Follow names that may fill a gap in the question: {', '.join(guesses)}.")

    def _frontier(self, root: State, passages: Passages) -> list[State]:
        """The rewrites whose search confirmed them best; at first, the question."""
        if not self._latest:
            return [root]
        trusted = trust(self._latest, match(self._latest, passages, self._lexical, self._memo)).tolist()
        order = sorted(zip(trusted, self._latest, strict=True), key=lambda pair: -pair[0])
        return [state for _, state in order[: self._settings.frontier]]

    def _make_room(self, view: View, passages: Passages) -> tuple[list[ToolUse], int]:
        """The edit that this turn begins with, if any, and the tokens that it frees, roughly."""
        if view.fold_due:
            note = self._note(view.question, passages)
            taken = 2 * len(note) // CHARACTERS_PER_TOKEN  # by the call, and by the note that it leaves
            return [ToolUse("fold", {"note": note})], sum(view.live_tokens.values()) - taken
        pruned = self._outgrown(view, passages) if view.strategy is Strategy.PRUNE else []
        edits = [ToolUse("prune_chunks", {"ids": pruned})] if pruned else []
        return edits, sum(view.live_tokens[i] for i in pruned)

    def _note(self, question: str, passages: Passages) -> str:
        """What is known so far: the best passages by id, each with the sentence of it that tells most."""
        fits = match(self._states, passages, self._lexical, self._memo)
        lines = []
        for passage in self._ranked(question, fits, passages)[: self._settings.keep]:
            told = " ".join(self._telling_sentence(question, passage).split())[:SENTENCE_CHARACTERS]
            lines.append(f"{passage.id}: {told}" if told and escape(told) == told else passage.id)
        return "\n".join(["Best evidence so far:", *lines])

    def _outgrown(self, view: View, passages: Passages) -> list[str]:
        """Every live chunk but the few that rank best by what is known now."""
        fits = match(self._states, passages, self._lexical, self._memo)
        live = set(view.live_tokens)
        if self._choices is None:
            ranked = [passage.id for passage in self._ranked(view.question, fits, passages)]
            return [i for i in ranked if i in live][self._settings.keep :]
        table: Floats = features(view.question, self._clauses, self._states, fits, passages, self._lexical)
        ranked_rows = [(row, passage) for row, passage in self._by_rules(table, passages) if passage.id in live]
        if len(ranked_rows) <= self._settings.keep:
            return []
        kept = set(self._choices.order(Kind.KEEP, self._keep_table(table, ranked_rows), self._settings.keep))
        return [passage.id for place, (_, passage) in enumerate(ranked_rows) if place not in kept]

    def _goes_on(self, view: View, fresh: int, choices: Choices) -> bool:
        """Whether another hop is made where one is allowed."""
        assert self._root is not None
        assert self._passages is not None
        passages = self._passages
        fits = match(self._states, passages, self._lexical, self._memo)
        trusted = float(trust(self._states, fits).max()) if self._states else 0.0
        by_fused = sorted(passages.all, key=lambda passage: -passages.fused(passage))[: view.max_results]
        verdict = judge(view.question, self._root.vector, by_fused, trusted, self._lexical)
        hop = view.turn - 2
        row = (
            GOING_ON,
            hop,
            HOPS.get(view.effort, 0) - hop,
            min(view.turns_left, MANY_TURNS) / MANY_TURNS,
            np.log1p(fresh),
            trusted,
            verdict.score,
            (view.budget.soft - view.prompt.tokens) / view.budget.soft,
        )
        return choices.yes(Kind.GO_ON, np.array([row], dtype=np.float64))

    def _by_rules(self, table: Floats, passages: Passages) -> list[tuple[int, Passage]]:
        """Passages with their rows, in the order of the hand-written rules."""
        row = {passage.id: j for j, passage in enumerate(passages.all)}
        ranked = spread(passages.all, score(table, self._settings.weights).tolist(), self._settings.discount)
        return [(row[passage.id], passage) for passage in ranked]

    def _keep_table(self, table: Floats, ranked: list[tuple[int, Passage]]) -> Floats:
        """Features of live passages, shape (passages, features), columns in the order of `FEATURES[Kind.KEEP]`."""
        assert self._root is not None
        assert self._passages is not None
        rows = [row for row, _ in ranked]
        place = (self._settings.keep - np.arange(len(ranked), dtype=np.float64)) / 2
        near = self._passages.matrix[rows] @ self._root.vector
        age = np.array(rows, dtype=np.float64) / len(self._passages)
        return np.column_stack([place, table[rows], near, age]).astype(np.float64)

    def _dearest_search(self, view: View) -> int:
        """Tokens that the chunks of the dearest search of the last turn took."""
        costs = [
            sum(view.live_tokens.get(i, 0) for i in observation.shown)
            for observation in view.observations
            if observation.call.name in SEARCHES
        ]
        return max(costs, default=0)

    def _finish(self, view: View, root: State, passages: Passages) -> Decision:
        if not len(passages):
            return _finish([], sufficient=False, why="No search brought a passage.", missing=[view.question])
        fits = match(self._states, passages, self._lexical, self._memo)
        ranked, margin = self._returned(view, root, fits, passages)
        best = float(trust(self._states, fits).max()) if self._states else 0.0
        verdict = judge(view.question, root.vector, ranked, best, self._lexical)
        sufficient = verdict.sufficient
        if self._choices is not None:
            told = _verdict_row(verdict, best, hops=view.turn - 2, shown=len(passages), margin=margin)
            sufficient = self._choices.yes(Kind.SUFFICIENT, told)
        why = f"The evidence scores {verdict.score:.2f} for covering the question (enough from {THRESHOLD:.2f})."
        if sufficient is not verdict.sufficient:
            why += f" Learned weights say that it is {'enough' if sufficient else 'not enough'}."
        if self._states:
            why += f" Followed {', '.join(dict.fromkeys(state.bridge for state in self._states))}."
        quotes = {p.id: self._telling_sentence(view.question, p) for p in ranked[: self._settings.quotes]}
        return _finish(
            [passage.id for passage in ranked],
            sufficient=sufficient,
            why=why[:JUSTIFICATION_CHARACTERS],
            missing=list(verdict.missing),
            quotes={i: quote for i, quote in quotes.items() if quote and escape(quote) == quote},
        )

    def _ranked(self, question: str, fits: Floats, passages: Passages) -> list[Passage]:
        table: Floats = features(question, self._clauses, self._states, fits, passages, self._lexical)
        scores = score(table, self._settings.weights).tolist()
        return spread(passages.all, scores, self._settings.discount)

    def _returned(self, view: View, root: State, fits: Floats, passages: Passages) -> tuple[list[Passage], float]:
        """The list that is returned, and by how much its first passage stands out from its last, 0 for one alone."""
        if self._choices is None:
            return self._ranked(view.question, fits, passages)[: view.max_results], 0.0
        table: Floats = features(view.question, self._clauses, self._states, fits, passages, self._lexical)
        vector = np.asarray(root.vector, dtype=np.float64)
        found = RankInputs(view.question, vector, self._clauses, self._states, passages, table, fits)
        wide = rank_table(found, self._lexical)
        scores = self._choices.weights.heads[Kind.RANK].scores(wide)
        rows = self._choices.order(Kind.RANK, wide, view.max_results)
        return [passages.all[row] for row in rows], float(scores[rows[0]] - scores[rows[-1]])

    def _telling_sentence(self, question: str, passage: Passage) -> str:
        """The sentence that covers most of the question and its rewrites; "" if none covers anything."""
        wanted = [self._lexical.content(text) for text in (question, *(state.text for state in self._states))]
        scored = []
        for number, sentence in enumerate(sentences(passage.text)):
            terms = self._lexical.terms(sentence)
            covered = max(self._lexical.coverage(part, terms) for part in wanted)
            scored.append((covered, -number, sentence.strip()))
        covered, _, sentence = max(scored, default=(0.0, 0, ""))
        return sentence if covered > 0 else ""


def _verdict_row(verdict: Verdict, trusted: float, *, hops: int, shown: int, margin: float) -> Floats:
    """Features of what is said of the evidence, shape (1, features), in the order of `FEATURES[Kind.SUFFICIENT]`."""
    rules = _logit(verdict.score) - _logit(THRESHOLD)
    row = (rules, verdict.nearest, verdict.covered, trusted, len(verdict.missing), hops, np.log1p(shown), margin)
    return np.array([row], dtype=np.float64)


def _logit(share: float) -> float:
    bounded = min(max(share, 1e-6), 1 - 1e-6)
    return math.log(bounded / (1 - bounded))


def _search_tools(view: View) -> list[str]:
    """The searches that are offered: of the corpus, of the web, or both."""
    return [tool.name for tool in view.tools if tool.name in SEARCHES] or [SEARCHES[0]]


def _search(tool: str, query: str) -> ToolUse:
    return ToolUse(tool, {"query": query})


def _finish(
    ids: list[str], *, sufficient: bool, why: str, missing: list[str], quotes: dict[str, str] | None = None
) -> Decision:
    arguments = {"evidence_ids": ids, "sufficient": sufficient, "justification": why, "missing": missing[:20]}
    if quotes:
        arguments["quotes"] = quotes
    return Decision((ToolUse("finish", arguments),))
