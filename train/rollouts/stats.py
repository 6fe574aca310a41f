"""What rollouts cost, counted."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from thresher.train.rollouts.rollout import Group


@dataclass(slots=True)
class RollStats:
    """Counts since a roller began. Searches are attempts: one rollout may take several.

    Attributes:
        started, finished: groups; `handed`: groups that training took.
        dropped: groups of which too few rollouts could be run, never handed over; `dropped_tasks` names the last ones.
        rerun_groups: tries of groups beyond the first, for that reason.
        searches: searches that were started.
        retries: searches that were run again after an infrastructure fault.
        faults: rollouts that every attempt failed for.
        errors: searches that ended with an error that is not the infrastructure's; they are scored like others.
        stale: rollouts that were run again since their oldest turn became too old; `stale_groups`: groups that were
            finished when that happened, and are finished twice.
        cancelled: searches that were stopped, stale ones included.
        waits: times that training had to wait for groups; `wait_seconds`: how long.
        waits_for_due: of these, times when enough groups were ready, and others had their last chance first.
        slot_seconds: slots × time; `busy_seconds`: of them, those in which a search ran; `wasted_seconds`: of those,
            what went into searches that ended in a fault, were stopped, or became stale.
        staleness: handed-over rollouts by how many versions their oldest turn was behind.
        partial: handed-over rollouts that went on while weights changed.
    """

    started: int = 0
    finished: int = 0
    handed: int = 0
    dropped: int = 0
    dropped_tasks: tuple[str, ...] = ()
    rerun_groups: int = 0
    searches: int = 0
    retries: int = 0
    faults: int = 0
    errors: int = 0
    stale: int = 0
    stale_groups: int = 0
    cancelled: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    waits_for_due: int = 0
    slot_seconds: float = 0.0
    busy_seconds: float = 0.0
    wasted_seconds: float = 0.0
    staleness: dict[int, int] = field(default_factory=dict)
    partial: int = 0

    @property
    def utilisation(self) -> float:
        """Busy slot seconds over slot seconds, in [0, 1]; 0 before any time has passed."""
        return self.busy_seconds / self.slot_seconds if self.slot_seconds > 0 else 0.0

    def count(self, group: Group, version: int) -> None:
        """A group is handed over while `version` is published."""
        self.handed += 1
        for rollout in group.scored:
            if rollout.versions:
                behind = max(0, version - min(rollout.versions))
                self.staleness[behind] = self.staleness.get(behind, 0) + 1
                self.partial += len(set(rollout.versions)) > 1

    def as_dict(self) -> dict[str, Any]:
        """All counts, and the utilisation, ready for JSON."""
        counts = {item.name: getattr(self, item.name) for item in fields(self)}
        staleness = {str(behind): count for behind, count in sorted(self.staleness.items())}
        dropped = list(self.dropped_tasks)
        return {**counts, "dropped_tasks": dropped, "staleness": staleness, "utilisation": self.utilisation}
