"""An evaluation's data, read: its systems, its sets and all sets together as one kind of part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.train.evaluation.reporting.figures import RECALL_10, SPAN_RECALL, Measure, known

Data = Mapping[str, Any]
"""`Evaluation.as_dict()`, as it is or read from JSON."""

OVERALL = "Overall"


@dataclass(frozen=True, slots=True)
class Part:
    """A set, or all sets together.

    Attributes:
        summaries: figures by system.
        differences: intervals by system and figure, against the baseline.
        data: what else is known of a set; empty for all sets together.
        questions, without_gold: how many there are.
    """

    name: str
    summaries: Mapping[str, Data]
    differences: Mapping[str, Data]
    data: Data
    questions: int
    without_gold: int

    def has(self, key: str) -> bool:
        """Whether a figure of any system has a value."""
        return any(known(summary.get(key)) is not None for summary in self.summaries.values())

    @property
    def found(self) -> Measure:
        """What says how much was found: recall@10, or span recall where only excerpts are gold."""
        return SPAN_RECALL if self.has(SPAN_RECALL.key) and not self.has(RECALL_10.key) else RECALL_10


def baseline(data: Data) -> str:
    """Name of the system that all differences refer to."""
    return str(data.get("baseline") or "one-search")


def system_names(data: Data) -> list[str]:
    """Systems in the order in which they are shown: the baseline first, the others as they were named."""
    named = [str(system["name"]) for system in data.get("systems") or ()]
    seen = [name for part in data.get("sets") or () for name in part.get("systems") or {}]
    every = list(dict.fromkeys((*named, *seen)))
    first = baseline(data)
    return [first, *(name for name in every if name != first)] if first in every else every


def parts(data: Data) -> list[Part]:
    """Each set."""
    return [
        _part(data, str(one.get("name", "")), one, _whole(one.get("questions")), _whole(one.get("without_gold")))
        for one in data.get("sets") or ()
    ]


def overall(data: Data) -> Part | None:
    """All sets together; None where there is one set alone, which says it all."""
    sets = parts(data)
    together = data.get("overall")
    if len(sets) < 2 or not together:
        return None
    counts = sum(part.questions for part in sets), sum(part.without_gold for part in sets)
    whole = _part(data, OVERALL, together, *counts)
    return Part(whole.name, whole.summaries, whole.differences, {}, *counts)


def currency(data: Data) -> str:
    """What money is counted in; empty where the data do not say."""
    return str(data.get("currency") or "")


def rows(part: Part) -> Sequence[Data]:
    """The questions of a set."""
    return list(part.data.get("rows") or ())


def failures(data: Data) -> list[tuple[str, Data]]:
    """Every failure with the name of its set."""
    return [(part.name, failure) for part in parts(data) for failure in part.data.get("failures") or ()]


def _part(data: Data, name: str, one: Data, questions: int, without_gold: int) -> Part:
    systems = one.get("systems") or {}
    summaries = {system: _summary(systems[system]) for system in system_names(data) if systems.get(system)}
    return Part(name, summaries, one.get("differences") or {}, one, questions, without_gold)


def _summary(value: Data) -> Data:
    """A set keeps a summary beside what leaked; all sets together are summaries alone."""
    inner = value.get("summary")
    return inner if isinstance(inner, Mapping) else value


def _whole(value: object) -> int:
    return int(known(value) or 0)
