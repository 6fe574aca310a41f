"""How far rollouts may run ahead of training, and which of them must be trained next.

With a bound of η versions and B groups a version, work is started only while what is started and not handed over fits
into the versions that may still train it: (η + 1)·B less what the current one has had already. That is the rule of
AReaL (Fu et al., "AReaL: A Large-Scale Asynchronous Reinforcement Learning System", 2025), counted from the
current version on.

The rule alone does not keep the bound. Groups that end soon are handed over before long ones that began earlier, and
the long ones grow stale; to drop them and run them again would train on short searches only. So a group has a
deadline, the last version that may train it, and a finished group is handed over only if those that remain, each
still in time, fit into the versions that are left: earliest deadline first, and only where it matters (Liu and
Layland, 1973). The trainer then waits for a long group at the last moment, and nothing is dropped for being long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """`max_staleness` versions, with `groups_per_step` groups trained by each."""

    max_staleness: int
    groups_per_step: int

    def stale(self, oldest: int | None, version: int) -> bool:
        """Whether a rollout whose oldest turn has version `oldest` is too old to be trained at `version`."""
        return oldest is not None and oldest < version - self.max_staleness

    def room(self, *, unhanded: int, taken: int) -> int:
        """Groups that may be started now.

        Args:
            unhanded: groups that are started and not handed over; `taken`: those that this version has had.
        """
        return max(0, (self.max_staleness + 1) * self.groups_per_step - taken - unhanded)

    def pick(
        self, ready: Sequence[int | None], running: Sequence[int | None], *, version: int, taken: int, count: int
    ) -> list[int] | None:
        """Places in `ready` of the next `count` groups to hand over, or None where some must be waited for.

        Args:
            ready: oldest versions of the groups that are finished, in order of completion; None for no version.
            running: the same of those that are not; None before their first turn.
            taken: groups that this version has had.
        """
        left = self.groups_per_step - taken
        due = Counter(self._deadline(oldest, version) for oldest in (*ready, *running) if oldest is not None)
        chosen: list[int] = []
        for _ in range(count):
            waiting = [place for place in range(len(ready)) if place not in chosen]
            limit = self._tight(due, version, left) if left > 0 else None
            places = [p for p in waiting if limit is None or self._due(ready[p], version, limit)]
            if not places:
                return None
            # Beyond what a version was said to take there is nothing to wait for, so those that are due go first.
            place = places[0] if left > 0 else min(places, key=lambda p: (self._age(ready[p], version), p))
            chosen.append(place)
            oldest = ready[place]
            if oldest is not None:
                due[self._deadline(oldest, version)] -= 1
            left -= 1
        return chosen

    def _deadline(self, oldest: int, version: int) -> int:
        """Versions from now on until the last one that may train it."""
        return max(0, oldest + self.max_staleness - version)

    def _age(self, oldest: int | None, version: int) -> int:
        return self.max_staleness + 1 if oldest is None else self._deadline(oldest, version)

    def _due(self, oldest: int | None, version: int, limit: int) -> bool:
        return oldest is not None and self._deadline(oldest, version) <= limit

    def _tight(self, due: Counter[int], version: int, left: int) -> int | None:
        """The soonest deadline by which there is no place left for a group that could wait longer; None if none is."""
        waiting = 0
        for deadline in range(self.max_staleness + 1):
            waiting += due[deadline]
            if waiting and waiting >= left + deadline * self.groups_per_step:
                return deadline
        return None
