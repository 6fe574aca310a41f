"""Questions by what the systems made of them, against the baseline: won, lost, both, the same, and without gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thresher.train.evaluation.reporting.figures import Measure, known
from thresher.train.evaluation.reporting.reading import Data


class Group(StrEnum):
    """What became of a question. The value is what a heading says."""

    WON = "Won"
    LOST = "Lost"
    MIXED = "Won by some, lost by others"
    SAME = "The same"
    WITHOUT_GOLD = "Without gold"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question.

    Attributes:
        row: the question and what each system made of it.
        gains: by system, how much more it found than the baseline; of those that have both figures.
    """

    row: Data
    gains: Mapping[str, float]

    @property
    def group(self) -> Group:
        """Where it belongs."""
        if not self.gains and not self.row.get("gold"):
            return Group.WITHOUT_GOLD
        won, lost = any(gain > 0 for gain in self.gains.values()), any(gain < 0 for gain in self.gains.values())
        if won:
            return Group.MIXED if lost else Group.WON
        return Group.LOST if lost else Group.SAME

    @property
    def largest(self) -> float:
        """The largest gain or loss, without its sign."""
        return max((abs(gain) for gain in self.gains.values()), default=0.0)


def outcomes(rows: Sequence[Data], baseline: str, found: Measure) -> dict[Group, list[Outcome]]:
    """Questions by group; in each the largest gains and losses first, then as the set has them."""
    groups: dict[Group, list[Outcome]] = {group: [] for group in Group}
    for row in rows:
        outcome = Outcome(row, _gains(row, baseline, found))
        groups[outcome.group].append(outcome)
    for group in groups.values():
        group.sort(key=lambda one: (-one.largest, -sum(abs(gain) for gain in one.gains.values())))
    return {group: found for group, found in groups.items() if found}


def standings(rows: Sequence[Data], baseline: str, found: Measure) -> dict[str, tuple[int, int, int]]:
    """Questions that a system won, lost, and did as well as the baseline; systems without any are left out."""
    counts: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        for name, gain in _gains(row, baseline, found).items():
            won, lost, same = counts.get(name, (0, 0, 0))
            counts[name] = won + (gain > 0), lost + (gain < 0), same + (gain == 0)
    return counts


def _gains(row: Data, baseline: str, found: Measure) -> dict[str, float]:
    systems = row.get("systems") or {}
    theirs = known((systems.get(baseline) or {}).get(found.key))
    if theirs is None:
        return {}
    return {
        str(name): ours - theirs
        for name, own in systems.items()
        if name != baseline and (ours := known(own.get(found.key))) is not None
    }
