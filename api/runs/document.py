"""Runs as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.api.runs.page import Ranked
    from thresher.train.monitoring.decisions import Decision
    from thresher.train.monitoring.runs import Run


def runs_document(runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of the table, of all runs."""
    return {"object": "list", "data": [summary(run) for run in runs]}


def summary(run: Run) -> dict[str, Any]:
    """A run without its steps."""
    before, after = run.before, run.after
    return {
        "object": "training_run",
        "path": str(run.path),
        "name": run.name,
        "kind": run.kind,
        "state": run.state,
        "why": run.why or None,
        "step": run.step,
        "steps": run.total,
        "reward": run.rewards[-1] if run.rewards else None,
        "rewards": run.rewards,
        "loss": run.losses[-1] if run.losses else None,
        "well_formed": run.well_formed,
        "alarms": [alarm.name for alarm in run.active],
        "before": before.model_dump(mode="json", exclude_none=True) if before is not None else None,
        "after": after.model_dump(mode="json", exclude_none=True) if after is not None else None,
        "step_seconds": run.step_seconds,
        "updated": run.updated or None,
        "problems": list(run.problems),
    }


def run_document(run: Run, decisions: Sequence[Decision]) -> dict[str, Any]:
    """All that is known of one run."""
    return {
        **summary(run),
        "settings": dict(run.settings),
        "changed_settings": [asdict(change) for change in run.changes],
        "log": [step.model_dump(exclude_none=True) for step in run.steps],
        "all_alarms": [asdict(alarm) for alarm in run.alarms],
        "evaluations": [each.model_dump(mode="json", exclude_none=True) for each in run.evaluations],
        "conformance_bound": run.bound,
        "decisions": [asdict(each) for each in decisions],
        "checkpoints": list(run.checkpoints),
        "rollouts": str(run.rollouts) if run.rollouts is not None else None,
        "weights": str(run.weights) if run.weights is not None else None,
        "failure": asdict(run.failure) if run.failure is not None else None,
    }


def rollouts_document(ranked: Ranked, problems: Sequence[str]) -> dict[str, Any]:
    """The best and worst rollouts of a step."""
    return {
        "object": "rollouts",
        "step": ranked.step,
        "best": [asdict(line) for line in ranked.best],
        "worst": [asdict(line) for line in ranked.worst],
        "problems": list(problems),
    }
