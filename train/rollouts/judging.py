"""Where rollouts are judged: between the end of a group's searches and their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from thresher.engine.requests import SearchRequest, SearchResult
from thresher.train.judges.errors import JudgeUnavailable
from thresher.train.rollouts.errors import ScoringFailed
from thresher.train.rollouts.faults import Fault
from thresher.train.rollouts.scoring import Outcome, Scores
from thresher.train.rollouts.searching import Found, request_for
from thresher.train.tasks.task import Task


@runtime_checkable
class Judging(Protocol):
    """A scorer that has to ask somebody first; see `thresher.train.judges.scorer.JudgedScorer`."""

    async def judging(self, task: Task, request: SearchRequest, results: Sequence[SearchResult]) -> Scores:
        """What scores these searches of one task, once they have been judged together.

        Raises:
            JudgeUnavailable: whoever judges cannot be reached: a fault of the infrastructure.
        """


async def judged(
    task: Task,
    outcomes: Sequence[Outcome],
    *,
    request: SearchRequest,
    scorer: Scores,
    deadline_s: float | None = None,
) -> tuple[Scores, list[Outcome]]:
    """What scores the searches of a group, judged together where the scorer asks a judge; and their outcomes.

    Where the judge cannot be reached, the searches that it was asked about have ended in a fault of the infrastructure,
    as they have where their own model cannot be: no reward of theirs is known, and 0 would be a lie.

    Raises:
        ScoringFailed: the judge broke: a bug. The message names the task.
    """
    found = [outcome.found.result for outcome in outcomes if outcome.found.fault is None]
    results = [result for result in found if result is not None]
    if not isinstance(scorer, Judging) or not results:
        return scorer, list(outcomes)
    try:
        return await scorer.judging(task, request_for(request, task, deadline_s), results), list(outcomes)
    except JudgeUnavailable as error:
        fault = Fault(f"{type(error).__name__}: {error}", passing=error.passing)
        return scorer, [replace(o, found=Found(None, fault)) if o.found.fault is None else o for o in outcomes]
    except Exception as error:
        raise ScoringFailed(
            f"the judge broke on task {task.id!r}: {type(error).__name__}: {error}. Rollouts end here, since leaving "
            "the searches out would train on a biased rest"
        ) from error
