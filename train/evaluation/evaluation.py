"""What an evaluation found, and its form as plain data (schema 1), from which reports are made."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from thresher.train.evaluation.differences import BySystem, Difference, differences, resampled
from thresher.train.evaluation.observing import Observed
from thresher.train.evaluation.summary import LeakCounts, Summary, count_leaks, overall, summarise
from thresher.train.evaluation.systems import BASELINE, System
from thresher.train.tasks.task import Task

OBJECT, SCHEMA = "evaluation", 1
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One question as every system answered it, by the system's name."""

    task: Task
    systems: Mapping[str, Observed]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "id": self.task.id,
            "type": self.task.type,
            "hops": self.task.hops,
            "gold": len(self.task.gold_ids),
            "systems": {name: observed.as_dict() for name, observed in self.systems.items()},
        }


@dataclass(frozen=True)
class SetResult:
    """One set, answered by every system.

    Attributes:
        embedder: what its collection is embedded with.
        excerpts_not_located: excerpts that stand in no document of the collection; questions that have one of them are
            not scored by span.
        prepare_seconds: time to open or ingest the corpus. `seconds`: time that the questions took.
        warnings: what whoever reads the figures should know.
        stratum: its number among the sets of the evaluation.
    """

    name: str
    split: str | None
    embedder: str
    documents: int
    chunks: int
    with_spans: int
    prepare_seconds: float
    seconds: float
    rows: tuple[Row, ...]
    excerpts: int = 0
    excerpts_not_located: int = 0
    warnings: tuple[str, ...] = ()
    stratum: int = 0

    def of(self, system: str) -> list[tuple[Task, Observed]]:
        """What a system did with each question."""
        return [(row.task, row.systems[system]) for row in self.rows]

    @property
    def baseline(self) -> list[Observed]:
        """What one search did with each question."""
        return [observed for _, observed in self.of(BASELINE.name)]

    def summary(self, system: str) -> Summary:
        """The means of a system."""
        return summarise(self.of(system), self.baseline)

    def leaks(self, system: str) -> LeakCounts | None:
        """What leaked into a system's searches; None if no guard watched."""
        return count_leaks(self.of(system), self.baseline)

    @property
    def names(self) -> tuple[str, ...]:
        """The systems."""
        return tuple(self.rows[0].systems) if self.rows else ()

    @cached_property
    def resampled(self) -> BySystem:
        """How far each system is from the baseline, resampled."""
        systems = {name: [observed for _, observed in self.of(name)] for name in self.names if name != BASELINE.name}
        return resampled(systems, self.baseline, stratum=self.stratum)

    def differences(self) -> dict[str, dict[str, Difference]]:
        """How far each system is from the baseline, by metric."""
        return differences([self.resampled])

    @property
    def failures(self) -> list[dict[str, str]]:
        """(id, system, error) of every failure."""
        return [
            {"id": row.task.id, "system": name, "error": observed.error}
            for row in self.rows
            for name, observed in row.systems.items()
            if observed.error is not None
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        gold = sum(row.task.answerable for row in self.rows)
        return {
            "name": self.name,
            "split": self.split,
            "embedder": self.embedder,
            "documents": self.documents,
            "chunks": self.chunks,
            "questions": len(self.rows),
            "with_gold": gold,
            "without_gold": len(self.rows) - gold,
            "with_spans": self.with_spans,
            "excerpts": self.excerpts,
            "excerpts_not_located": self.excerpts_not_located,
            "prepare_seconds": self.prepare_seconds,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "systems": {name: self._system(name) for name in self.names},
            "differences": _differences(self.differences()),
            "failures": self.failures,
            "rows": [row.as_dict() for row in self.rows],
        }

    def _system(self, name: str) -> dict[str, Any]:
        leaks = self.leaks(name)
        summary = {"summary": asdict(self.summary(name))}
        return summary if leaks is None else summary | {"leaks": asdict(leaks)}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Several systems on several sets: the same questions, on the same index.

    Attributes:
        systems: the baseline, which is one search, first.
        ranking: how all of them rank, in words; those that rerank do so on top of it.
        at_once: questions that were asked at once. With more than one, seconds are those of a loaded machine.
        settings: what else was set.
        command, date, version: who asked, when (ISO 8601), and with which release.
    """

    systems: tuple[System, ...]
    sets: tuple[SetResult, ...]
    embedder: str
    max_results: int
    ranking: str
    reranker: str | None = None
    currency: str | None = None
    at_once: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    date: str = ""
    version: str = ""

    @property
    def failed(self) -> bool:
        """Whether any system failed on any question."""
        return any(found.failures for found in self.sets)

    def summary(self, system: str) -> Summary:
        """The means of a system over all sets."""
        return overall([found.summary(system) for found in self.sets])

    def differences(self) -> dict[str, dict[str, Difference]]:
        """How far each system is from the baseline over all sets."""
        return differences([found.resampled for found in self.sets])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with a row for each question. Floats are rounded."""
        names = [system.name for system in self.systems]
        data = {
            "object": OBJECT,
            "schema": SCHEMA,
            "version": self.version,
            "date": self.date,
            "command": self.command,
            "machine": {
                "cpus": os.cpu_count(),
                "platform": platform.platform(terse=True),
                "python": platform.python_version(),
            },
            "embedder": self.embedder,
            "max_results": self.max_results,
            "ranking": self.ranking,
            "at_once": self.at_once,
            "under_load": self.at_once > 1,
            "currency": self.currency,
            "settings": dict(self.settings),
            "baseline": BASELINE.name,
            "systems": [system.as_dict(self.reranker) for system in self.systems],
            "sets": [found.as_dict() for found in self.sets],
            "overall": {
                "systems": {name: asdict(self.summary(name)) for name in names},
                "differences": _differences(self.differences()),
            },
        }
        rounded: dict[str, Any] = _rounded(data)
        return rounded


def _differences(found: Mapping[str, Mapping[str, Difference]]) -> dict[str, Any]:
    return {name: {metric: asdict(item) for metric, item in metrics.items()} for name, metrics in found.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(item) for item in value]
    return value
