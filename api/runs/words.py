"""Figures of a run in words and in blocks of text, the same in the terminal and on the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.train.monitoring.decisions import Decision
    from thresher.train.monitoring.runs import Run
    from thresher.train.trainer.evaluating import Evaluation

NONE = "–"
BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "×"
SHARES = ("evidence_recall", "trajectory_recall", "precision", "answer_found", "answer_f1", "well_formed", "finished")
COUNTS = ("searches", "turns")
"""Figures of an evaluation."""


def sparkline(values: Sequence[float], width: int = 16) -> str:
    """Values as blocks of eight heights, the least lowest; of more than `width`, means of as many stretches.

    What is no finite number is a cross, and so is a stretch that holds one.
    """
    if not values or width < 1:
        return ""
    drawn = stretches(values, width)
    finite = [value for value in drawn if math.isfinite(value)]
    if not finite:
        return NOT_FINITE * len(drawn)
    low, high = min(finite), max(finite)
    scale = high - low
    return "".join(
        NOT_FINITE
        if not math.isfinite(value)
        else BLOCKS[3]
        if not 0 < scale < math.inf
        else BLOCKS[min(7, int((value - low) / scale * 8))]
        for value in drawn
    )


def stretches(values: Sequence[float], most: int) -> list[float]:
    """Means of at most so many stretches of values, each as long as the others within one."""
    if len(values) <= most:
        return list(values)
    edges = [round(number * len(values) / most) for number in range(most + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]


def number(value: float | None) -> str:
    """A number in three digits."""
    return NONE if value is None else f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.3g}"


def share(value: float | None, digits: int = 0) -> str:
    """A share as per cent."""
    return NONE if value is None else f"{value:.{digits}%}"


def duration(seconds: float | None) -> str:
    """Seconds, in the largest unit of which there is at least one."""
    if seconds is None:
        return NONE
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def age(run: Run, now: float) -> str:
    """How long ago something of a run was written."""
    return duration(max(0.0, now - run.updated)) if run.updated else NONE


def shown_path(path: Path) -> str:
    """A path as one would write it here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def steps_text(run: Run) -> str:
    """`7 of 33`."""
    return f"{run.step:,}" + (f" of {run.total:,}" if run.total is not None else "")


def reward_text(run: Run) -> tuple[str, list[float]]:
    """The newest reward, or the loss of a run without rewards, and what its trend is drawn of."""
    if rewards := run.rewards:
        return f"{rewards[-1]:.3f}", rewards
    if losses := run.losses:
        return f"loss {losses[-1]:.3f}", losses
    return NONE, []


def change_text(run: Run) -> str:
    """What training changed, by the first figure that both evaluations have; of one alone, that one."""
    before, after = run.before, run.after
    for name in ("evidence_recall", "answer_found", "well_formed"):
        pair = [getattr(each, name, None) for each in (before, after)]
        if any(value is not None for value in pair):
            return f"{name.replace('_', ' ')} {share(pair[0])} → {share(pair[1]) if after is not None else '…'}"
    pair = [each.reward.mean if each is not None and each.reward is not None else None for each in (before, after)]
    return f"reward {number(pair[0])} → {number(pair[1])}" if any(value is not None for value in pair) else NONE


def label(evaluation: Evaluation) -> str:
    """How an evaluation is called."""
    return evaluation.label if evaluation.label != "step" else f"step {evaluation.step:,}"


def evaluation_figures(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[str]]]:
    """Figures of evaluations beside each other; those that none of them has are left out."""
    rows: list[tuple[str, list[str]]] = []
    for name in (*SHARES, *COUNTS):
        values = [getattr(each, name) for each in evaluations]
        if any(value is not None for value in values):
            form = share if name in SHARES else number
            rows.append(
                (name.replace("_", " "), [form(value, 1) if form is share else number(value) for value in values])
            )
    if any(each.reward is not None for each in evaluations):
        rows.append(("reward", [number(each.reward.mean if each.reward is not None else None) for each in evaluations]))
    rows.append(("questions", [f"{each.questions:,}" for each in evaluations]))
    if any(each.faults for each in evaluations):
        rows.append(("lost to faults", [f"{each.faults:,}" for each in evaluations]))
    return rows


def value_text(value: Any) -> str:
    """A setting as one would write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def figures_text(decision: Decision, most: int = 8) -> str:
    """The figures behind a decision."""
    shown = [
        f"{name} {number(value) if isinstance(value, int | float) and not isinstance(value, bool) else value}"
        for name, value in list(decision.figures.items())[:most]
    ]
    rest = len(decision.figures) - len(shown)
    return ", ".join(shown) + (f", {rest} more" if rest > 0 else "")


def when(seconds: float | None) -> str:
    """A moment, by the clock of this machine."""
    from datetime import datetime

    try:
        return NONE if not seconds else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return NONE


def health_facts(run: Run) -> list[tuple[str, str]]:
    """Conformance, staleness, faults and checkpoints, each in a line."""
    rows: list[tuple[str, str]] = []
    checked = [(step.step, step.conformance) for step in run.steps if step.conformance is not None]
    if checked:
        worst, most = max(checked, key=lambda pair: pair[1].max)
        last = checked[-1][1]
        bound = f"; held to the bound {run.bound}" if run.bound else ""
        rows.append(
            (
                "conformance",
                f"mean difference {last.mean:.2g} nats at the last step, largest of all {most.max:.2g} at step "
                f"{worst:,}{bound}; each step here has passed",
            )
        )
    stale = [(step.step, step.staleness) for step in run.steps if step.staleness is not None]
    if stale:
        worst, most = max(stale, key=lambda pair: pair[1].max)
        rows.append(
            (
                "staleness",
                f"mean {stale[-1][1].mean:.2g} versions at the last step, at most {most.max:g} (step {worst:,})",
            )
        )
    rollouts, faults = sum(step.rollouts for step in run.steps), sum(step.faults for step in run.steps)
    if rollouts:
        rows.append(("faults", f"{faults:,} of {rollouts:,} rollouts lost to the infrastructure"))
    groups, constant = sum(step.groups for step in run.steps), sum(step.constant_groups for step in run.steps)
    if groups:
        rows.append(("constant groups", f"{constant:,} of {groups:,}: nothing to learn from"))
    if run.checkpoints:
        rows.append(("checkpoints", ", ".join(f"step {step:,}" for step in run.checkpoints)))
    elif run.kind in ("rl", "sft"):
        rows.append(("checkpoints", "none that is complete"))
    return rows
