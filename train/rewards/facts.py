"""What is true of a search, as rewards, alarms and reports need it. Read off its result; nothing is judged here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from thresher.context import BlockKind
from thresher.engine.best_of import ROLLOUT
from thresher.engine.policy import Outcome
from thresher.engine.requests import RankedEvidence, SearchRequest, SearchResult, StopReason
from thresher.engine.swarm import ASSIGN_TASK
from thresher.engine.tools.edits import PRUNE_CHUNKS
from thresher.engine.tools.finish import FINISH
from thresher.engine.trajectory import COLLECTION, Trajectory, TurnRecord
from thresher.train.metrics.answers import answer_found, answer_score, findable
from thresher.train.metrics.retrieval import distinct
from thresher.train.rewards.calls import malformed_calls, refused_calls
from thresher.train.rollouts.faults import fault_of
from thresher.train.tasks.task import Task
from thresher.train.trajectories import roots_of, trajectories_of

OPEN_TYPES = frozenset({"open", "open-ended"})
"""Types of tasks without a known answer, and with answers to be found: nobody earns by leaving them open."""
CHARACTERS_A_TOKEN = 4
"""What reasoning is estimated by, where its tokens are not known."""
_AGAIN = re.compile(r"#\d+(?=/|$)")
"""Ends the id of a sub-agent's second task, and of those after it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one search for one task. Documents go by the ids that gold ids use.

    Attributes:
        gold: documents that hold the evidence; `reachable`: those of them that the collection has.
        returned: distinct documents of the returned list, best first; `shown`: documents of all passages ever shown.
        has_answers: whether the task has answers to compare with; that there is none is not one.
        answer_returned, answer_shown: one of the answers stands in a returned passage, in any that was shown. "Yes"
            and "no" stand everywhere, so a task with no other answers counts as answered where all its gold is.
        answer_f1: how well the answer in words matches one of the answers, in [0, 1]: 1 if they say the same (see
            `answers_match`), else the best token F1; None if it gave none.
        finished: the policy ended the search itself; `sufficient`: what it said of the evidence, None if nothing.
        turns: of the search itself, without its sub-agents; of several rollouts the most.
        turns_left, tokens_left: shares in [0, 1] of the turn limit and of the hard token limit that were not used.
        calls, searches: of all agents together.
        malformed: calls that could not be run as written, replies without a call among them.
        prune_streak: the most prune calls in a row; `pruned`, `pruned_gold`: passages out of the context at the end.
        unseen_cited: ids in `finish` that were never shown.
        reasoning_tokens: tokens that the policy wrote besides calls and edits, by their count where it sampled them,
            else about a quarter of their characters.
        subagents, finished_subagents, useful_subagents: given a task; of these, ended by themselves; of those, with
            evidence that the search returned.
        parallel: sub-agents that ran beside another one.
        critical_steps: turns one after another (`Usage.critical_steps`).
        fault: why the search could not be run, if that was not the policy's doing (`thresher.train.rollouts.faults`, or
            it was cancelled); None otherwise.
        refused: calls that were well formed and refused, or in vain (past the hard limit, an unknown document).
        completion_tokens: all that the policies wrote.
        findable: whether an answer can be looked for in a passage: there is one that is not "yes" or "no".
        answer_place: place of the first returned document in which an answer stands, from 1; None if none does.
        open: the task says (type `open`) that it has no known answer, and that there are answers to be found.
        judge: what a judge gave it, in [0, 1]; None if none was asked, or came to no majority. See
            `thresher.train.judges`.
    """

    gold: frozenset[str]
    reachable: frozenset[str]
    returned: tuple[str, ...]
    shown: frozenset[str]
    has_answers: bool
    answer_returned: bool
    answer_shown: bool
    answer_f1: float | None
    finished: bool
    sufficient: bool | None
    stop_reason: str
    turns: int
    turns_left: float
    tokens_left: float
    calls: int
    searches: int
    malformed: int
    prune_calls: int
    prune_streak: int
    pruned: int
    pruned_gold: int
    unseen_cited: int
    reasoning_tokens: int
    subagents: int = 0
    finished_subagents: int = 0
    useful_subagents: int = 0
    parallel: int = 0
    critical_steps: int = 0
    fault: str | None = None
    refused: int = 0
    completion_tokens: int = 0
    findable: bool = True
    answer_place: int | None = None
    open: bool = False
    judge: float | None = None


def identity(document_id: str) -> str:
    """The id itself: gold ids are mostly those of the engine."""
    return document_id


def facts_of(
    task: Task,
    request: SearchRequest,
    result: SearchResult,
    *,
    name: Callable[[str], str] = identity,
    reachable: Collection[str] | None = None,
) -> Facts:
    """Facts of a search for a task.

    Args:
        request: as it was run; it says what limits there were.
        name: the engine's document id -> the id that gold ids use.
        reachable: gold ids that the collection has; None: all of them.
    """
    gold = frozenset(task.gold_ids)
    trajectory = result.trajectory
    roots = roots_of(trajectory) if trajectory is not None else ()
    parts = tuple(trajectories_of(trajectory)) if trajectory is not None else ()
    turns = [turn for part in parts for turn in part.turns]
    returned = tuple(distinct(name(item.document_id) for item in result.results))
    documents = [name(evidence.document_id) for part in parts for evidence in part.evidence]
    shown = frozenset(documents) if trajectory is not None else frozenset(returned)
    texts = [evidence.text for part in parts for evidence in part.evidence] or [item.text for item in result.results]
    answers = task.to_be_found
    looked_for = findable(answers)
    place = _place_of(answers, result.results, name) if looked_for else None
    pruned = [
        name(e.document_id) for root in roots for gone in [set(root.pruned)] for e in root.evidence if e.id in gone
    ]
    steps = result.usage.critical_steps
    return Facts(
        gold=gold,
        reachable=gold if reachable is None else gold.intersection(reachable),
        returned=returned,
        shown=shown,
        has_answers=bool(answers),
        answer_returned=place is not None if looked_for else _all_of(gold, task, returned),
        answer_shown=answer_found(answers, texts) if looked_for else _all_of(gold, task, shown),
        answer_f1=None
        if result.answer is None or not result.answer.text
        else answer_score(result.answer.text, answers),
        finished=bool(trajectory) and result.stop_reason is StopReason.FINISHED,
        sufficient=result.sufficient,
        stop_reason=str(result.stop_reason),
        turns=max((len(root.turns) for root in roots), default=0),
        turns_left=_turns_left(request, roots, steps),
        tokens_left=min((_tokens_left(root) for root in roots), default=1.0),
        calls=result.usage.calls,
        searches=result.usage.searches,
        malformed=malformed_calls(turns),
        prune_calls=sum(o.tool == PRUNE_CHUNKS.name for turn in turns for o in turn.observations),
        prune_streak=max((_streak(part.turns) for part in parts), default=0),
        pruned=len(pruned),
        pruned_gold=sum(document in gold for document in pruned),
        unseen_cited=sum(map(_unseen, parts)),
        reasoning_tokens=sum(map(_reasoning_tokens, turns)),
        critical_steps=steps,
        fault=_fault(result),
        refused=refused_calls(turns),
        completion_tokens=result.usage.completion_tokens,
        findable=looked_for,
        answer_place=place,
        open=task.type in OPEN_TYPES,
        **_subagent_facts(roots, result.results),
    )


def _fault(result: SearchResult) -> str | None:
    if result.stop_reason is StopReason.CANCELLED:
        return "the search was cancelled"
    fault = fault_of(result)
    return None if fault is None else fault.text


def _all_of(gold: frozenset[str], task: Task, documents: Iterable[str]) -> bool:
    """What "found" means where the answers are "yes" or "no": all of the evidence is there."""
    return bool(task.answers) and bool(gold) and gold <= set(documents)


def _place_of(answers: Sequence[str], results: Sequence[RankedEvidence], name: Callable[[str], str]) -> int | None:
    """Place of the first document with an answer in it, from 1."""
    documents = distinct(name(item.document_id) for item in results)
    for item in results:
        if answer_found(answers, [item.text]):
            return documents.index(name(item.document_id)) + 1
    return None


def _turns_left(request: SearchRequest, roots: Sequence[Trajectory], critical_steps: int) -> float:
    most = max((len(root.turns) for root in roots), default=0)
    left = 1 - most / request.turns
    if request.max_critical_steps is not None:
        left = min(left, 1 - critical_steps / request.max_critical_steps)
    return min(1.0, max(0.0, left))


def _tokens_left(root: Trajectory) -> float:
    """Of the hard limit, at the end: what was pruned on the way is free again."""
    ended = [turn.tokens_after or turn.prompt_tokens for turn in root.turns]
    hard = root.budget.get("hard", 0)
    return min(1.0, max(0.0, 1 - ended[-1] / hard)) if ended and hard else 1.0


def _streak(turns: Sequence[TurnRecord]) -> int:
    """The most prune calls in a row; any other call that was run ends a row, in the order they were written."""
    longest = row = 0
    for turn in turns:
        written = {call.id: number for number, call in enumerate(turn.calls)}
        for observation in sorted(turn.observations, key=lambda item: written.get(item.call_id, 0)):
            if observation.tool == PRUNE_CHUNKS.name:
                row += 1
                longest = max(longest, row)
            elif observation.outcome != Outcome.REJECTED:
                row = 0
    return longest


def _unseen(trajectory: Trajectory) -> int:
    """Ids that a `finish` named and that had not been shown by then. Ids of calls that cannot be read name nothing."""
    return sum(
        len(set(_ids_in(call.arguments)) - {e.id for e in trajectory.evidence if e.turn <= turn.index})
        for turn in trajectory.turns
        for call in turn.calls
        if call.name == FINISH.name
    )


def _ids_in(arguments: str) -> list[str]:
    try:
        named = json.loads(arguments)["evidence_ids"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [item for item in named if isinstance(item, str)] if isinstance(named, list) else []


def _reasoning_tokens(turn: TurnRecord) -> int:
    for event in turn.events:
        if event.get("append") == BlockKind.REASONING and event.get("ids"):
            return len(event["ids"])
    return -(-len(turn.reasoning) // CHARACTERS_A_TOKEN)


def _subagent_facts(roots: Sequence[Trajectory], results: Sequence[RankedEvidence]) -> dict[str, int]:
    used = {(_path(item.agent), item.chunk_id) for item in results if item.agent}
    counts = {"subagents": 0, "finished_subagents": 0, "useful_subagents": 0, "parallel": 0}
    for root in roots:
        for part in trajectories_of(root):
            counts["parallel"] += sum(_beside(turn) for turn in part.turns)
            if part is root:
                continue
            finished = part.stop_reason == StopReason.FINISHED
            path = _AGAIN.sub("", part.id.removeprefix(root.id + "/"))
            kept = set(part.returned)
            chunks = {evidence.chunk_id for evidence in part.evidence if evidence.id in kept}
            useful = any(chunk in chunks and (at == path or at.startswith(path + "/")) for at, chunk in used)
            counts["subagents"] += 1
            counts["finished_subagents"] += finished
            counts["useful_subagents"] += finished and useful
    return counts


def _beside(turn: TurnRecord) -> int:
    """Tasks of a turn that ran at once."""
    given = sum(o.tool == ASSIGN_TASK and o.outcome != Outcome.REJECTED for o in turn.observations)
    return given if given > 1 else 0


def _path(agent: str) -> str:
    """The way to a sub-agent from the search that it belongs to, without the rollout or collection above that."""
    parts = agent.split("/")
    while parts and parts[0].startswith((ROLLOUT, COLLECTION)):
        del parts[0]
    return "/".join(parts)
