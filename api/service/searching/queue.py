"""A queue that is fair between tenants: who has the least running is next, in turns where several have as little."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Things that wait, by the tenant whose they are; each tenant's own are first in, first out."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}  # in the order in which tenants had their last turn

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def waiting(self, tenant: str) -> int:
        """How many of a tenant's wait."""
        return len(self._lines.get(tenant, ()))

    def put(self, tenant: str, item: T) -> None:
        """Let it wait, last of its tenant's."""
        self._lines.setdefault(tenant, deque()).append(item)

    def take(self, running: Counter[str]) -> T | None:
        """The next one, given how many of each tenant's run; None if nothing waits."""
        if not self._lines:
            return None
        tenant = min(self._lines, key=lambda name: running[name])  # the first of those that have as little
        line = self._lines.pop(tenant)
        item = line.popleft()
        if line:
            self._lines[tenant] = line
        return item

    def remove(self, tenant: str, item: T) -> bool:
        """Let it wait no longer; whether it did."""
        line = self._lines.get(tenant)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[tenant]
        return True

    def drain(self) -> list[T]:
        """All that wait, which then do no longer."""
        items = [item for line in self._lines.values() for item in line]
        self._lines.clear()
        return items
