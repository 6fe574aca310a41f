"""What happens around each optimiser step: the log, curves, evaluations, checkpoints that count, and progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from thresher.train.monitoring.log import LOG_NAME, LogWriter, StepLog
from thresher.train.rollouts.budgets import budget_figures
from thresher.train.rollouts.recording import RolloutLog
from thresher.train.rollouts.rollout import Group
from thresher.train.trainer.checkpoints import mark_complete
from thresher.train.trainer.evaluating import Evaluation, append_evaluation, read_evaluations
from thresher.train.trainer.report import StepReport
from thresher.train.trainer.tracking import Tracker
from thresher.train.trajectories import trajectories_of

Tell = Callable[[str, Mapping[str, Any]], None]
"""Told how a run goes: the kind of event, and its data."""
Evaluate = Callable[[str, int, int], Evaluation]
"""Evaluates now: label, step and version."""
ROLLOUTS = "rollouts.jsonl"


def nothing(kind: str, data: Mapping[str, Any]) -> None:
    """Tells nobody."""


def checkpoint_saved(folder: Path, step: int, *, keep: int, tell: Tell) -> None:
    """The trainer has written the checkpoint of a step below `folder`: it counts from now on."""
    checkpoint = folder / f"checkpoint-{step}"
    mark_complete(checkpoint, {"step": step}, keep=keep)
    tell("checkpoint", {"step": step, "path": str(checkpoint)})


class Watch(TrainerCallback):  # type: ignore[misc]
    """Writes what a run does, on the main process.

    Args:
        evaluate: scores the model as it is now; None where nothing is evaluated.
        every: steps between evaluations; 0: only before and after.
        keep: checkpoints.
        more: further numbers for a step's log.
    """

    def __init__(
        self,
        out: Path,
        *,
        steps: int,
        keep: int,
        trackers: Sequence[Tracker],
        rollouts: bool,
        evaluate: Evaluate | None,
        every: int,
        more: Callable[[], Mapping[str, Any]],
        tell: Tell,
    ) -> None:
        self.log = LogWriter(out / LOG_NAME)
        self.evaluations = {(each.label, each.step): each for each in read_evaluations(out)}
        self.last: StepLog | None = None
        self._out = out
        self._steps = steps
        self._keep = keep
        self._trackers = trackers
        self._rollouts = RolloutLog(out / ROLLOUTS) if rollouts else None
        self._evaluate = evaluate
        self._every = every
        self._more = more
        self._tell = tell
        self._version = 0

    def step(self, report: StepReport) -> None:
        """A step is done, and its weights are published."""
        fields = report.log_fields()
        sampled = sum(map(_sampled, report.groups))
        numbers = {"sampled_tokens": float(sampled), "train_seconds": report.seconds - report.waited}
        numbers |= budget_figures(report.groups)
        more = dict(self._more())
        log = StepLog.of(
            report.groups, **{**fields, **more, "more": {**fields["more"], **numbers, **more.get("more", {})}}
        )
        self.log.append(log)
        self.last = log
        self._version = report.version
        if self._rollouts is not None:
            for group in report.groups:
                self._rollouts.append(group)
        self._track(report.step, log.scalars())
        self._tell("step", {"step": log, "steps": self._steps})
        if self._every and report.step % self._every == 0 and report.step < self._steps:
            self.evaluated("step", report.step, report.version)

    def evaluated(self, label: str, step: int, version: int) -> None:
        """Evaluate and write it down, unless that was done before."""
        if self._evaluate is None or (label, step) in self.evaluations:
            return
        evaluation = self._evaluate(label, step, version)
        append_evaluation(self._out, evaluation)
        self.evaluations[label, step] = evaluation
        numbers = evaluation.model_dump(exclude={"label", "step"}, exclude_none=True)
        flat = {f"evaluation/{name}": float(v) for name, v in numbers.items() if isinstance(v, int | float)}
        self._track(step, flat)
        self._tell("evaluation", {"evaluation": evaluation})

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first step, the weights that training begins with are evaluated."""
        if state.global_step == 0:
            self.evaluated("before", 0, 0)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written."""
        if state.is_world_process_zero:
            checkpoint_saved(Path(args.output_dir), state.global_step, keep=self._keep, tell=self._tell)

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        if self._rollouts is not None:
            self._rollouts.close()
        for tracker in self._trackers:
            tracker.close()

    def _track(self, step: int, scalars: Mapping[str, float]) -> None:
        for tracker in self._trackers:
            tracker.add(step, scalars)


def _sampled(group: Group) -> int:
    """Tokens that the policy wrote, sub-agents included."""
    return sum(
        len(turn.sampled.output_ids)
        for rollout in group.rollouts
        if rollout.trajectory is not None
        for part in trajectories_of(rollout.trajectory)
        for turn in part.turns
        if turn.sampled is not None
    )
