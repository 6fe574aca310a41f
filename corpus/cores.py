"""How many processors there are to use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores this process may run on (a container or taskset can allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
