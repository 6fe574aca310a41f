"""A run's log as pictures: one file for each subject, one panel for each curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thresher.train.errors import TrainError
from thresher.train.monitoring.log import StepLog, log_path, read_log
from thresher.train.trainer.evaluating import Evaluation, read_evaluations

SMOOTH = 0.9
"""Share of the past in the moving average that is drawn over a noisy curve."""
_SMOOTH_FROM = 20
_COLUMNS = 3
_WIDTH, _HEIGHT = 4.2, 2.6
_SUBJECTS = {
    "training": ("loss", "lr", "grad_norm", "entropy", "kl", "clip_fraction", "tokens", "segments", "seconds"),
    "rollouts": ("utilisation", "faults", "constant_groups", "staleness/mean", "staleness/max", "floored"),
    "conformance": ("conformance/mean", "conformance/max"),
}
_FIGURES = ("evidence_recall", "trajectory_recall", "precision", "answer_found", "well_formed", "finished")


class PlotError(TrainError):
    """The pictures cannot be drawn."""

    code = "cannot_plot"


def plot_run(run: Path, out: Path | None = None) -> list[Path]:
    """Draw the run in a folder.

    Returns:
        The files: `reward`, `terms`, `parts`, `facts`, `gradient_share`, `training`, `rollouts`, `conformance`,
        `evaluation`, as far as the log has numbers for them.

    Raises:
        LogError: there is no log.
        PlotError: matplotlib is missing, or the log is empty.
    """
    steps = read_log(run)
    folder = log_path(run).parent
    if not steps:
        raise PlotError(f"{log_path(run)} holds no steps yet")
    plots = _matplotlib()
    target = out or folder / "plots"
    target.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, curves in curves_by_subject(steps).items():
        if curves:
            made.append(_draw_curves(plots, target / f"{name}.png", name, curves))
    if any(step.gradient_share for step in steps):
        made.append(_draw_shares(plots, target / "gradient_share.png", steps))
    evaluations = read_evaluations(folder)
    if evaluations:
        made.append(_draw_evaluations(plots, target / "evaluation.png", evaluations))
    return made


Curve = list[tuple[int, float]]
"""Points of one curve: step and value."""


def curves_by_subject(steps: Sequence[StepLog]) -> dict[str, dict[str, Curve]]:
    """Curves by subject and name."""
    by_name: dict[str, Curve] = {}
    for step in steps:
        for name, value in step.scalars().items():
            if math.isfinite(value):
                by_name.setdefault(name, []).append((step.step, value))
    groups: dict[str, dict[str, Curve]] = {
        "reward": {name: by_name[name] for name in ("reward/mean", "reward/std") if name in by_name}
    }
    for prefix in ("terms", "parts", "facts", "stop_reasons"):
        groups[prefix] = {
            name.removeprefix(f"{prefix}/"): curve
            for name, curve in by_name.items()
            if name.startswith(f"{prefix}/") and any(value for _, value in curve)
        }
    for subject, names in _SUBJECTS.items():
        groups[subject] = {name: by_name[name] for name in names if any(value for _, value in by_name.get(name, ()))}
    return groups


def _draw_curves(plots: Any, file: Path, title: str, curves: Mapping[str, Curve]) -> Path:
    columns = min(_COLUMNS, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure, axes = plots.subplots(
        rows, columns, figsize=(_WIDTH * columns, _HEIGHT * rows + 0.4), squeeze=False, layout="constrained"
    )
    for axis, (name, curve) in zip(axes.flat, curves.items(), strict=False):
        x, y = [step for step, _ in curve], [value for _, value in curve]
        noisy = len(curve) >= _SMOOTH_FROM
        axis.plot(x, y, linewidth=0.8 if noisy else 1.4, alpha=0.4 if noisy else 1.0, marker="." if len(x) < 30 else "")
        if noisy:
            axis.plot(x, smoothed(y), linewidth=1.6)
        axis.set_title(name.replace("_", " "), fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25)
    for axis in list(axes.flat)[len(curves) :]:
        axis.set_axis_off()
    figure.suptitle(f"{title.replace('_', ' ')}, by optimiser step", fontsize=11)
    return _saved(plots, figure, file)


def _draw_shares(plots: Any, file: Path, steps: Sequence[StepLog]) -> Path:
    """Whose gradient it is: shares by the number of segments of a rollout, stacked."""
    having = [step for step in steps if step.gradient_share]
    names = sorted({name for step in having for name in step.gradient_share}, key=least_segments)
    figure, axis = plots.subplots(figsize=(7, 4), layout="constrained")
    x = [step.step for step in having]
    bottom = [0.0] * len(x)
    for name in names:
        heights = [step.gradient_share.get(name, 0.0) for step in having]
        axis.bar(x, heights, bottom=bottom, width=0.9, label=name)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("optimiser step")
    axis.set_title("gradient share by the number of segments of a rollout", fontsize=11)
    axis.legend(fontsize=8, title="segments", title_fontsize=8, loc="lower right")
    return _saved(plots, figure, file)


def least_segments(name: str) -> int:
    """The least number of segments in a class ("2-3", "16+")."""
    return int(name.partition("-")[0].rstrip("+"))


def _draw_evaluations(plots: Any, file: Path, evaluations: Sequence[Evaluation]) -> Path:
    """What training changed: each figure before, at steps between, and after."""
    figure, (shares, counts) = plots.subplots(
        1, 2, figsize=(11, 4), layout="constrained", gridspec_kw={"width_ratios": [3, 1]}
    )
    names = [name for name in _FIGURES if any(getattr(each, name) is not None for each in evaluations)]
    _bars(shares, evaluations, names)
    shares.set_ylim(0, 1.05)
    _bars(counts, evaluations, ["searches", "turns"])
    shares.legend(fontsize=8)
    figure.suptitle(f"evaluation on {evaluations[-1].questions:,} questions", fontsize=11)
    return _saved(plots, figure, file)


def _bars(axis: Any, evaluations: Sequence[Evaluation], names: Sequence[str]) -> None:
    width = 0.8 / len(evaluations)
    for place, each in enumerate(evaluations):
        label = each.label if each.label != "step" else f"step {each.step:,}"
        x = [number + width * (place - (len(evaluations) - 1) / 2) for number in range(len(names))]
        heights = [value if (value := getattr(each, name)) is not None else 0.0 for name in names]
        axis.bar(x, heights, width=width, label=label)
    axis.set_xticks(range(len(names)), [name.replace("_", "\n") for name in names], fontsize=8)
    axis.grid(axis="y", alpha=0.25)


def smoothed(values: Sequence[float], share: float = SMOOTH) -> list[float]:
    """Exponential moving average, without the pull towards 0 at the start (as Adam's means; Kingma and Ba, 2015)."""
    mean = 0.0
    found = []
    for number, value in enumerate(values, 1):
        mean = share * mean + (1 - share) * value
        found.append(mean / (1 - share**number))
    return found


def _saved(plots: Any, figure: Any, file: Path) -> Path:
    figure.savefig(file, dpi=110)
    plots.close(figure)
    return file


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError("plots need matplotlib: pip install 'thresher[train]', or pip install matplotlib") from error
    matplotlib.use("Agg")  # no window
    import matplotlib.pyplot as plots

    return plots
