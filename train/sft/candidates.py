"""Searches that could be taught, with what is known of their quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thresher.engine.requests import StopReason
from thresher.engine.trajectory import Trajectory
from thresher.train.metrics.answers import answer_found, findable
from thresher.train.metrics.retrieval import recall
from thresher.train.rewards.facts import Facts
from thresher.train.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Quality:
    """What a filter asks of a search.

    Attributes:
        shown: share of the gold documents that it was ever shown, in [0, 1]: trajectory recall. Where a task has
            answers and no gold, 1.0 if a passage with an answer was shown, else 0.0. None if neither can be looked for.
        returned: the same of what it returned: output recall.
        finished: the policy ended it itself; `sufficient`: what it said of the evidence.
        fault: why it could not be run, if that was not the policy's doing.
    """

    shown: float | None
    returned: float | None
    finished: bool
    sufficient: bool | None
    fault: str | None = None

    @classmethod
    def of_facts(cls, facts: Facts) -> Quality:
        """Of a scored rollout."""
        if facts.gold:
            shown, returned = recall(facts.shown, facts.gold), recall(facts.returned, facts.gold)
            return cls(shown, returned, facts.finished, facts.sufficient, facts.fault)
        if facts.findable:
            shown, returned = float(facts.answer_shown), float(facts.answer_returned)
            return cls(shown, returned, facts.finished, facts.sufficient, facts.fault)
        return cls(None, None, facts.finished, facts.sufficient, facts.fault)

    @classmethod
    def of_trajectory(cls, trajectory: Trajectory, task: Task | None, name: Callable[[str], str] = str) -> Quality:
        """Of a recorded search, by its evidence; `name` turns the engine's document ids into those of gold ids."""
        finished = trajectory.stop_reason == StopReason.FINISHED
        returned = set(trajectory.returned)
        by_id = {record.id: record for record in trajectory.evidence}
        kept = [record for id_, record in by_id.items() if id_ in returned]
        shown_recall, returned_recall = None, None
        if task is not None and task.gold_ids:
            shown_recall = recall({name(record.document_id) for record in by_id.values()}, task.gold_ids)
            returned_recall = recall({name(record.document_id) for record in kept}, task.gold_ids)
        elif task is not None and findable(task.answers):
            shown_recall = float(answer_found(task.answers, (record.text for record in by_id.values())))
            returned_recall = float(answer_found(task.answers, (record.text for record in kept)))
        return cls(shown_recall, returned_recall, finished, trajectory.sufficient)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A search that could be taught.

    Attributes:
        task: None for a served search that belongs to no task.
        source: where it comes from: the name of a policy, or of a file.
        reward: None where it was not scored.
    """

    trajectory: Trajectory
    task: Task | None
    quality: Quality
    source: str = ""
    reward: float | None = None
