"""Scores on tasks that are not trained on, by the same searches, scorer and model as the rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.errors import RunError
from thresher.train.lines import LineFile
from thresher.train.metrics.retrieval import mean, precision
from thresher.train.monitoring.log import StepLog
from thresher.train.monitoring.means import FactMeans, Spread
from thresher.train.rewards import terms
from thresher.train.rollouts.errors import InfrastructureDown
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.single import roll_groups
from thresher.train.tasks.task import Task

EVALUATIONS = "evaluations.jsonl"
EVALUATION_SEED = 1
"""Apart from the seeds of rollouts, and the same for every evaluation of a run."""


class Evaluation(BaseModel):
    """What the model scored at one point of its training. Shares lie in [0, 1]; None where no task allows a figure.

    Attributes:
        label: `before`, `step` or `after`.
        evidence_recall: gold documents returned, of all; over tasks with gold. `trajectory_recall`: shown, of all.
        precision: gold of the documents returned, where any were.
        answer_found: an answer stands in a returned passage; `answer_f1`: of answers in words, where there were any.
        well_formed: calls and replies that could be run as written, of all.
        searches, turns: a question.
        reward: at the end of the training's schedule, so that evaluations can be compared.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    label: str
    step: int
    version: int
    questions: int
    faults: int = 0
    seconds: float = 0.0
    evidence_recall: float | None = None
    trajectory_recall: float | None = None
    precision: float | None = None
    answer_found: float | None = None
    answer_f1: float | None = None
    well_formed: float | None = None
    searches: float | None = None
    turns: float | None = None
    finished: float | None = None
    reward: Spread | None = None
    terms: dict[str, float] = {}
    parts: dict[str, float] = {}
    facts: FactMeans | None = None

    @classmethod
    def of(cls, groups: Sequence[Group], *, label: str, step: int, version: int, seconds: float) -> Evaluation:
        """The scores of these searches. What an infrastructure fault took away is counted, and in no mean."""
        log = StepLog.of(groups, step=step)
        facts = [rollout.facts for group in groups for rollout in group.rollouts if rollout.facts is not None]
        gold = [fact for fact in facts if fact.gold]
        asked = [fact for fact in facts if fact.has_answers]
        means = log.facts
        return cls(
            label=label,
            step=step,
            version=version,
            questions=log.rollouts,
            faults=log.faults,
            seconds=seconds,
            evidence_recall=mean(terms.returned_recall(fact) for fact in gold),
            trajectory_recall=mean(terms.trajectory_recall(fact) for fact in gold),
            precision=mean(precision(fact.returned, fact.gold) for fact in gold if fact.returned),
            answer_found=mean(fact.answer_returned for fact in asked),
            answer_f1=mean(fact.answer_f1 for fact in asked if fact.answer_f1 is not None),
            well_formed=None if means is None else 1 - means.malformed_rate,
            searches=None if means is None else means.searches,
            turns=None if means is None else means.turns,
            finished=None if means is None else means.finished,
            reward=log.reward,
            terms=log.terms,
            parts=log.parts,
            facts=means,
        )


async def evaluate(
    engine: SearchEngine,
    request: SearchRequest,
    scorer: Scores,
    tasks: Sequence[Task],
    *,
    label: str,
    step: int,
    version: int,
    settings: RollSettings,
    seed: int = 0,
    on_task: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """One search of each task, with the same dice each time, so that evaluations of a run can be compared.

    Args:
        settings: of it, concurrency, attempts and deadline count.
        on_task: told how many are done, and of how many.

    Raises:
        InfrastructureDown: no search could be run.
        ScoringFailed: the scorer or the engine raised.
    """
    started = time.perf_counter()
    groups = await roll_groups(
        engine,
        request,
        scorer,
        tasks,
        size=1,
        seed=seed,
        version=version,
        concurrency=settings.concurrency,
        settings=settings,
        on_task=None if on_task is None else lambda done, total, _: on_task(done, total),
    )
    faults = [rollout.fault for group in groups for rollout in group.rollouts if rollout.fault is not None]
    if faults and len(faults) == len(groups):
        raise InfrastructureDown(
            f"for the evaluation {label} at step {step:,} none of {len(groups):,} searches could be run, the last "
            f"because: {faults[-1]}. Mend that, then go on from the last checkpoint"
        )
    return Evaluation.of(groups, label=label, step=step, version=version, seconds=time.perf_counter() - started)


def append_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Write one behind the others; it is on the disk when this returns."""
    file = LineFile(folder / EVALUATIONS)
    try:
        file.append(evaluation.model_dump_json(exclude_none=True).encode() + b"\n", sync=True)
    finally:
        file.close()


def read_evaluations(folder: Path) -> list[Evaluation]:
    """The evaluations of a run, each step and label once: the later counts. Half a line at the end is passed over.

    Raises:
        RunError: a line is no evaluation.
    """
    path = folder / EVALUATIONS
    if not path.is_file():
        return []
    found: dict[tuple[str, int], Evaluation] = {}
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            evaluation = Evaluation.model_validate_json(line)
        except ValidationError as error:
            raise RunError(f"{path}:{number} is no evaluation of this version of thresher: {error}") from error
        found[evaluation.label, evaluation.step] = evaluation
    return sorted(found.values(), key=lambda each: (each.step, each.label == "after"))
