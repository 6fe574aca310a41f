"""How far systems are from the baseline: paired differences with their bootstrap intervals.

Questions are resampled, so what both systems did with a question stays together (Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993). Over several sets the questions of each are resampled by themselves, and the difference is the
mean of the sets' differences, each set counted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thresher.train.evaluation.observing import Observed
from thresher.train.metrics.retrieval import BOOTSTRAP_SAMPLES, BOOTSTRAP_SEED, bootstrap_means, bounds

PAIRED = (
    "recall_5",
    "recall_10",
    "all_gold_10",
    "ndcg_10",
    "answer_found",
    "span_recall",
    "span_iou",
    "prompt_tokens",
    "seconds",
)
"""Values of a question that are compared one by one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference with the bounds of its 95 % interval; `n`: questions on which both systems have a value."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Resampled:
    """A mean difference, and what it is in each sample of the bootstrap: shape (samples,)."""

    mean: float
    means: npt.NDArray[np.float64]
    n: int

    @property
    def difference(self) -> Difference:
        """With its interval."""
        return Difference(self.mean, *bounds(self.means), self.n)


BySystem = dict[str, dict[str, Resampled]]
"""By system and metric."""


def resampled(
    systems: Mapping[str, Sequence[Observed]],
    baseline: Sequence[Observed],
    *,
    samples: int = BOOTSTRAP_SAMPLES,
    seed: int = BOOTSTRAP_SEED,
    stratum: int = 0,
) -> BySystem:
    """Differences of systems from the baseline on the questions of one set, all in the same order.

    All systems are resampled alike. A metric that no question has is left out.

    Args:
        stratum: number of the set, so that sets are resampled independently of each other.
    """
    columns: dict[tuple[str, str], npt.NDArray[np.float64]] = {}
    for name, results in systems.items():
        if len(results) != len(baseline):
            raise ValueError(f"{name} has {len(results)} questions and the baseline {len(baseline)}: they must pair")
        for metric in PAIRED:
            columns[name, metric] = _values(results, metric) - _values(baseline, metric)
    by_questions: dict[bytes, list[tuple[str, str]]] = {}
    for key, column in columns.items():
        by_questions.setdefault((~np.isnan(column)).tobytes(), []).append(key)
    found: BySystem = {name: {} for name in systems}
    for mask, keys in by_questions.items():
        present = np.frombuffer(mask, dtype=np.bool_)
        if not present.any():
            continue
        values = np.stack([columns[key][present] for key in keys], axis=1)
        means = bootstrap_means(values, samples=samples, seed=(seed, stratum))
        for number, (name, metric) in enumerate(keys):
            found[name][metric] = Resampled(float(values[:, number].mean()), means[:, number], len(values))
    return found


def differences(sets: Sequence[BySystem]) -> dict[str, dict[str, Difference]]:
    """Of one set as they are; of several the mean over those that have the metric, each counted once."""
    found: dict[str, dict[str, Difference]] = {}
    for name in dict.fromkeys(name for by_system in sets for name in by_system):
        found[name] = {}
        for metric in PAIRED:
            own = [by_system[name][metric] for by_system in sets if metric in by_system.get(name, {})]
            if own:
                means = np.mean([item.means for item in own], axis=0)
                centre = sum(item.mean for item in own) / len(own)
                found[name][metric] = Difference(centre, *bounds(means), sum(item.n for item in own))
    return found


def _values(results: Sequence[Observed], metric: str) -> npt.NDArray[np.float64]:
    values = (getattr(result, metric) for result in results)
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
