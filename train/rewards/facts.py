"""What is true of a search, as rewards, alarms and reports need it. Read off its result; nothing is judged here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one search for one task. Documents go by the ids that gold ids use.

    Attributes:
        gold: documents that hold the evidence; `reachable`: those of them that the collection has.
        returned: distinct documents of the returned list, best first; `shown`: documents of all passages ever shown.
        has_answers: whether the task has answers to compare with.
        answer_returned, answer_shown: one of the answers stands in a returned passage, in any that was shown.
        answer_f1: best token F1 of the answer in words against the answers; None if it gave none.
        finished: the policy ended the search itself; `sufficient`: what it said of the evidence, None if nothing.
        turns_left, tokens_left: shares in [0, 1] of the turn limit and of the hard token limit that were not used.
        malformed: calls that could not be run as written, replies without a call among them.
        prune_streak: the most prune calls in a row; `pruned`, `pruned_gold`: passages out of the context at the end.
        unseen_cited: ids in `finish` that were never shown.
        subagents, finished_subagents, useful_subagents: given a task; of these, ended by themselves; of those, with
            evidence that the search returned.
        parallel: sub-agents that ran beside another one.
        fault: why the search could not be run, if that was not the policy's doing; None otherwise.
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
