"""The builtin policy as the head of a swarm: one sub-agent for each independent part of a question.

A question with such parts is given out in the first turn, and searched as a whole beside that; what comes back is
fused by rank. A question without them is searched exactly as the builtin policy searches it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from thresher.context import Evidence, escape
from thresher.engine.fusion import fuse
from thresher.engine.policies.builtin.lexical import Corpus, Lexical
from thresher.engine.policies.builtin.links import sentences
from thresher.engine.policies.builtin.parts import independent_parts
from thresher.engine.policies.builtin.policy import BuiltinPolicy
from thresher.engine.policy import Decision, Observation, Outcome, ToolUse, View
from thresher.engine.swarm.report import verdict
from thresher.engine.swarm.swarm import ASSIGN_TASK, CREATE_SUBAGENT

INSTRUCTIONS = "Find the passages that answer your task. Other agents look for the other parts of the question."
QUOTES = 5
PARTS_K = 0
"""The constant of reciprocal rank fusion. The usual 60 takes standing in several lists for a confirmation; lists that
answer different questions confirm nothing, and the first of each is what counts. (104 comparisons of HotpotQA,
recall@5: 78 % at k = 60, 99 % at 0.)
"""


class Orchestrator:
    """One search over one corpus, with sub-agents where the question has parts for them."""

    name = "builtin"

    def __init__(self, corpus: Corpus, alone: BuiltinPolicy) -> None:
        self._alone = alone
        self._lexical = Lexical(corpus)
        self._parts: dict[str, str] = {}
        self._of_parts: list[list[str]] = []
        self._of_searches: list[list[str]] = []
        self._verdicts: dict[str, bool | None] = {}
        self._searched: set[str] = set()

    async def decide(self, view: View) -> Decision:
        """The next turn: give out the parts, search those that were not done, and finish; or search alone."""
        if not self._parts and not self._begin(view):
            return await self._alone.decide(view)
        if view.turn == 1:
            return self._give_out(view)
        self._take_in(view.observations)
        undone = [part for name, part in self._parts.items() if name not in self._verdicts]
        waiting = [part for part in undone if part not in self._searched]
        if waiting and view.turns_left > 1:
            self._searched.update(waiting)
            why = f"These parts came back without a search: {'; '.join(waiting)}. Search them here."
            return Decision(tuple(_search(part) for part in waiting), why)
        return await asyncio.to_thread(self._finish, view, undone)

    def _begin(self, view: View) -> bool:
        """Whether the question is given out; decided once, in the first turn."""
        offered = {tool.name for tool in view.tools}
        if view.turn > 1 or view.turns_left < 2 or not {CREATE_SUBAGENT, ASSIGN_TASK} <= offered:
            return False
        parts = independent_parts(view.question)
        self._parts = {f"part{number}": part for number, part in enumerate(parts, 1)}
        return bool(parts)

    def _give_out(self, view: View) -> Decision:
        """Create and assign in one turn, so that all parts are searched at once, and the whole question beside them."""
        calls = [ToolUse(CREATE_SUBAGENT, {"name": name, "instructions": INSTRUCTIONS}) for name in self._parts]
        # First, so that sub-agents are credited only with what this search does not find by itself.
        calls.append(_search(view.question))
        calls += [ToolUse(ASSIGN_TASK, {"agent": name, "task": part}) for name, part in self._parts.items()]
        return Decision(tuple(calls), f"The question has independent parts: {'; '.join(self._parts.values())}.")

    def _take_in(self, observations: Sequence[Observation]) -> None:
        """Keep how each call of the turn ranked what is known, and what each sub-agent said of its part."""
        for observation in observations:
            if observation.call.name not in (ASSIGN_TASK, "search_corpus"):
                continue
            sightings = sorted(observation.sightings, key=lambda sighting: sighting.rank)
            rankings = self._of_parts if observation.call.name == ASSIGN_TASK else self._of_searches
            rankings.append([sighting.evidence_id for sighting in sightings])
            if observation.call.name == ASSIGN_TASK and observation.outcome in (Outcome.OK, Outcome.EMPTY):
                name = str(json.loads(observation.call.arguments)["agent"])
                self._verdicts[name] = verdict(name, observation.message)

    def _finish(self, view: View, undone: Sequence[str]) -> Decision:
        ids = [evidence_id for evidence_id, _ in fuse([*self._of_parts, *self._of_searches], k=PARTS_K)][
            : view.max_results
        ]
        missing = [self._parts[name] for name, word in self._verdicts.items() if word is not True] + list(undone)
        sufficient = bool(ids) and not missing
        found = len(self._parts) - len(missing)
        quotes = self._quotes([view.store.get(evidence_id) for evidence_id in ids[:QUOTES]])
        arguments: dict[str, object] = {
            "evidence_ids": ids,
            "sufficient": sufficient,
            "justification": f"{found} of {len(self._parts)} parts were answered.",
            "missing": missing,
        }
        if quotes:
            arguments["quotes"] = quotes
        return Decision((ToolUse("finish", arguments),))

    def _quotes(self, evidence: Sequence[Evidence]) -> Mapping[str, str]:
        """For each passage the sentence that covers most of the part it fits best."""
        wanted = [self._lexical.content(part) for part in self._parts.values()]
        quotes = {}
        for item in evidence:
            covered = 0.0
            for sentence in sentences(item.text):
                terms = self._lexical.terms(sentence)
                share = max(self._lexical.coverage(part, terms) for part in wanted)
                text = sentence.strip()
                if share > covered and text and escape(text) == text:
                    covered, quotes[item.id] = share, text
        return quotes


def _search(query: str) -> ToolUse:
    return ToolUse("search_corpus", {"query": query})
