"""Alarms: what goes wrong in a training run while its reward still climbs.

An alarm is raised when all conditions of one of its ways hold, and cleared when none of its ways holds at the milder
limits, so that a value that wavers about a limit is one alarm and not twenty. All conditions are data (`RULES`). What
is raised depends on the steps alone: not on when, or in what pieces, the log was read.

The monitors are those that published runs lacked: searching that stops at one query or dies out, and reasoning that
decays while scores hold (re-examinations of Search-R1); broken calls (Cursor Composer, 2026); pruning and
returning without regard, which the F_β of Context-1 (2026) is annealed against; sub-agents without use (Kimi K2.5,
2026).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from thresher.train.monitoring.log import StepLog, rewound

BASELINE = 10
"""Steps at the start of a run that later ones are compared with."""

LOOK_BACK = 200
"""Steps back to which a rise is looked for."""

Measure = Callable[[Sequence[float], int], float | None]
"""A number made of all values so far, the newest last, and a window; None while there are too few."""


def level(values: Sequence[float], window: int) -> float | None:
    """Mean of the window."""
    return fmean(values[-window:]) if len(values) >= window else None


def of_baseline(values: Sequence[float], window: int) -> float | None:
    """Mean of the window as a share of the run's first steps; None also where those were 0."""
    if len(values) < BASELINE + window:
        return None
    start = fmean(values[:BASELINE])
    return fmean(values[-window:]) / start if start > 0 else None


def above_lowest(values: Sequence[float], window: int) -> float | None:
    """Mean of the window minus the lowest that such a mean has been in the last `LOOK_BACK` steps."""
    if len(values) < window:
        return None
    first = max(window, len(values) - LOOK_BACK)
    means = [fmean(values[end - window : end]) for end in range(first, len(values) + 1)]
    return means[-1] - min(means)


def spread(values: Sequence[float], window: int) -> float | None:
    """Largest minus smallest value of the window."""
    return max(values[-window:]) - min(values[-window:]) if len(values) >= window else None


def jump(values: Sequence[float], window: int) -> float | None:
    """The newest value over the median of the window before it."""
    if len(values) <= window:
        return None
    usual = median(values[-window - 1 : -1])
    return values[-1] / usual if usual > 0 else None


def not_finite(values: Sequence[float], window: int) -> float | None:
    """1 if a value of the window is NaN or infinite, else 0."""
    return float(not all(map(math.isfinite, values[-window:]))) if values else None


@dataclass(frozen=True, slots=True)
class Condition:
    """One number of the log, held against a limit.

    Attributes:
        path: as in `StepLog.scalars`, or one of `_DERIVED`.
        raise_at, clear_at: holds from the first on, and no longer below the second; the other way round where
            `clear_at` is the larger.
        window: steps in which the number was logged. A number that never was makes the condition fail, unless it is
            `optional`.
    """

    path: str
    measure: Measure
    raise_at: float
    clear_at: float
    window: int = 8
    optional: bool = False

    def holds(self, value: float | None, *, raised: bool) -> bool:
        """Whether it holds; while its alarm is raised, at the milder limit."""
        if value is None:
            return self.optional
        limit = self.clear_at if raised else self.raise_at
        return value >= limit if self.raise_at >= self.clear_at else value <= limit


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """When to raise an alarm, and what to say. It is raised if all conditions of any of its `ways` hold."""

    name: str
    ways: tuple[tuple[Condition, ...], ...]
    means: str
    advice: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that went wrong.

    Attributes:
        step: of the optimiser, when it was raised; `cleared`: when it was over, None if it is not.
        values: what was measured then, by path; `limits`: what was held against it.
    """

    name: str
    step: int
    values: dict[str, float] = field(hash=False)
    limits: dict[str, float] = field(hash=False)
    means: str
    advice: str
    cleared: int | None = None

    def __str__(self) -> str:
        measured = ", ".join(f"{path} {value:.3g} (limit {self.limits[path]:g})" for path, value in self.values.items())
        until = "" if self.cleared is None else f", over at step {self.cleared}"
        return f"{self.name} at step {self.step}{until}: {measured}. {self.means} {self.advice}"


def _rising(path: str, raise_at: float, clear_at: float) -> tuple[Condition, ...]:
    """It is high, and was lower: a weak model that begins high and learns is no alarm."""
    return Condition(path, level, raise_at, clear_at), Condition(path, above_lowest, 0.1, 0.05)


def _lasting(path: str, raise_at: float, clear_at: float) -> Condition:
    """It is high, and training does not change it."""
    return Condition(path, level, raise_at, clear_at, window=24)


_INCOMPLETE = Condition("terms/trajectory_recall", level, 0.9, 0.95, optional=True)
"""Searches do not find everything."""

RULES: tuple[AlarmRule, ...] = (
    AlarmRule(
        "one_search_stop",
        (
            (*_rising("facts/one_search", 0.5, 0.35), _INCOMPLETE),
            (_lasting("facts/one_search", 0.5, 0.35), _INCOMPLETE),
        ),
        "Most searches stop after one query, though it does not find everything.",
        "Raise `early` in the reward profile, add tasks with more hops, or go back to a checkpoint before this step.",
    ),
    AlarmRule(
        "no_search",
        (
            _rising("facts/no_search", 0.3, 0.15),
            (_lasting("facts/no_search", 0.5, 0.35),),
            (Condition("facts/searches", of_baseline, 0.35, 0.5),),
        ),
        "Searching dies out: the policy answers without looking, or looks far less than it did.",
        "Check that the index answers well (thresher train doctor): a retriever that misleads is one that training "
        "learns to avoid. Then go back to a checkpoint before this step.",
    ),
    AlarmRule(
        "malformed_rate",
        (
            _rising("facts/malformed_rate", 0.25, 0.15),
            (_lasting("facts/malformed_rate", 0.5, 0.35),),
        ),
        "Calls that cannot be run become more, or stay the most of all.",
        "See that no broken sample is discarded and that `malformed` costs more than a failed search; a model that "
        "starts like this needs more supervised fine-tuning first (thresher train sft).",
    ),
    AlarmRule(
        "prune_all",
        ((Condition("facts/pruned_all", level, 0.3, 0.15),),),
        "Searches throw away everything that they were shown.",
        "See in the rollouts whether gold passages go (`pruned_gold_share`), lower `prune_free`, and make sure that "
        "nothing in the reward pays for a small context.",
    ),
    AlarmRule(
        "return_all",
        ((Condition("facts/named_all", level, 0.5, 0.35),),),
        "Searches return all that they were shown instead of choosing.",
        "Lower β (`beta_start`, `beta_end`), raise `excess`, or lower `allowed_documents`.",
    ),
    AlarmRule(
        "spawn_without_use",
        (
            (
                Condition("facts/subagents", level, 1.0, 0.5),
                Condition("facts/useful_share", level, 0.2, 0.35),
            ),
        ),
        "Sub-agents are started, and next to none of what they find is used.",
        "Raise `idle`, lower `parallel` and `finish`, or let them end sooner (`swarm_until`).",
    ),
    AlarmRule(
        "reasoning_decay",
        ((Condition("facts/reasoning_tokens_per_turn", of_baseline, 0.4, 0.6),),),
        "The policy writes far less reasoning than at the start. Scores can hold for long while this goes on, and then "
        "do not come back.",
        "Lower `length` if it is above 0, add a KL term, or go back to a checkpoint before this step.",
    ),
    AlarmRule(
        "empty_handed",
        (
            _rising("facts/empty_handed", 0.5, 0.3),
            (_lasting("facts/empty_handed", 0.5, 0.3),),
        ),
        "Most searches return nothing: the policy gives up, or its calls go wrong.",
        "See in the rollouts how they end. If it is `sufficient=false` at once, raise `early`.",
    ),
    AlarmRule(
        "unseen_cited",
        ((Condition("facts/cites_unseen", level, 0.3, 0.15),),),
        "Searches end by naming ids that were never shown.",
        "Raise `unseen_each` and `unseen_cap`.",
    ),
    AlarmRule(
        "unfinished",
        ((Condition("facts/finished", of_baseline, 0.5, 0.7),),),
        "Far fewer searches are ended by the policy itself than at the start; limits end them.",
        "See which in `stop_reasons`, and that an end by a limit is not paid better than one of its own.",
    ),
    AlarmRule(
        "constant_groups",
        ((Condition("constant_share", level, 0.8, 0.6),),),
        "In nearly all groups every rollout earns the same, so there is next to nothing to learn from.",
        "Take harder or easier tasks (thresher train doctor), larger groups, or a higher temperature.",
    ),
    AlarmRule(
        "reward_flat",
        ((Condition("reward/mean", spread, 0.005, 0.02, window=20),),),
        "The reward has not moved at all.",
        "See that weights reach the sampler (`version`, `staleness`), that the learning rate is not 0, and that groups "
        "are not constant.",
    ),
    AlarmRule(
        "blow_up",
        (
            (Condition("loss", not_finite, 1.0, 1.0, window=1),),
            (Condition("grad_norm", not_finite, 1.0, 1.0, window=1),),
            (Condition("grad_norm", jump, 20.0, 5.0, window=16),),
        ),
        "The loss or the gradient is not a number, or far larger than it was.",
        "Stop, lower the learning rate, clip the gradient, and go on from a checkpoint before this step.",
    ),
    AlarmRule(
        "entropy_collapse",
        ((Condition("entropy", of_baseline, 0.2, 0.35),),),
        "The policy has all but stopped to vary, so that it no longer tries anything.",
        "Lower the learning rate, raise the upper clip, or go back to a checkpoint before this step.",
    ),
    AlarmRule(
        "entropy_blow_up",
        ((Condition("entropy", of_baseline, 3.0, 2.0),),),
        "The policy becomes random.",
        "Lower the learning rate or add a KL term, and go back to a checkpoint before this step.",
    ),
    AlarmRule(
        "faults",
        ((Condition("fault_share", level, 0.2, 0.1, window=4),),),
        "Many rollouts are lost to faults of the infrastructure; what is left may not be a fair sample.",
        "See the faults in the rollouts, and that the model server and the index are well.",
    ),
)
"""Every alarm with its limits."""

_DERIVED: dict[str, Callable[[StepLog], float | None]] = {
    "constant_share": lambda log: log.constant_groups / log.groups if log.groups else None,
    "fault_share": lambda log: log.faults / log.rollouts if log.rollouts else None,
}


class Monitor:
    """Watches a run step by step.

    Args:
        rules: which alarms there are.

    Attributes:
        steps: the run as it counts: a step that comes again takes the place of the first and of all after it.
        alarms: all that were raised, in the order in which they were.
    """

    def __init__(self, rules: Sequence[AlarmRule] = RULES) -> None:
        self.rules = tuple(rules)
        self._paths = {condition.path for rule in self.rules for way in rule.ways for condition in way}
        self._reset()

    @property
    def active(self) -> list[Alarm]:
        """Alarms that are not over."""
        return [alarm for alarm in self.alarms if alarm.cleared is None]

    def update(self, log: StepLog) -> list[Alarm]:
        """Take in a step; the alarms that it raises."""
        if self.steps and log.step <= self.steps[-1].step:
            earlier = rewound([*self.steps, log])[:-1]
            self._reset()
            for step in earlier:
                self._take(step)
        return self._take(log)

    def _reset(self) -> None:
        self.steps: list[StepLog] = []
        self.alarms: list[Alarm] = []
        self._values: dict[str, list[float]] = {path: [] for path in self._paths}
        self._raised: dict[str, int] = {}

    def _take(self, log: StepLog) -> list[Alarm]:
        self.steps.append(log)
        scalars = log.scalars()
        for path, values in self._values.items():
            value = _DERIVED[path](log) if path in _DERIVED else scalars.get(path)
            if value is not None:
                values.append(value)
        raised = []
        for rule in self.rules:
            at = self._raised.get(rule.name)
            way = self._holding(rule, raised=at is not None)
            if way and at is None:
                self._raised[rule.name] = len(self.alarms)
                raised.append(self._alarm(rule, way, log.step))
                self.alarms.append(raised[-1])
            elif not way and at is not None:
                self.alarms[at] = replace(self.alarms[at], cleared=log.step)
                del self._raised[rule.name]
        return raised

    def _holding(self, rule: AlarmRule, *, raised: bool) -> tuple[Condition, ...]:
        for way in rule.ways:
            if all(condition.holds(self._measure(condition), raised=raised) for condition in way):
                return way
        return ()

    def _measure(self, condition: Condition) -> float | None:
        return condition.measure(self._values[condition.path], condition.window)

    def _alarm(self, rule: AlarmRule, way: Sequence[Condition], step: int) -> Alarm:
        measured = {_label(condition): (self._measure(condition), condition.raise_at) for condition in way}
        values = {label: value for label, (value, _) in measured.items() if value is not None}
        limits = {label: measured[label][1] for label in values}
        return Alarm(rule.name, step, values, limits, rule.means, rule.advice)


def alarms_of(steps: Iterable[StepLog], rules: Sequence[AlarmRule] = RULES) -> list[Alarm]:
    """All alarms of a run, in the order in which they were raised."""
    monitor = Monitor(rules)
    for step in rewound(steps):
        monitor.update(step)
    return monitor.alarms


def _label(condition: Condition) -> str:
    """The number, and what was made of it if that is not its mean."""
    how: dict[Measure, str] = {
        level: "",
        of_baseline: " of the first steps'",
        above_lowest: " above its lowest",
        spread: " spread",
    }
    return condition.path + how.get(condition.measure, f" {condition.measure.__name__}")
