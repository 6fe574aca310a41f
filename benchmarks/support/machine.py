"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("chromadb", "tantivy", "bm25s", "numpy", "torch")


def machine() -> dict[str, Any]:
    """What the figures are measured on and with; `load_average` is that of the last minute, before anything ran."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory = next((int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        **{name: _version(name) for name in _PACKAGES},
    }


def told(found: dict[str, Any]) -> str:
    """In one line."""
    return " · ".join(f"{name} {value}" for name, value in found.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text(errors="replace").splitlines() if path.exists() else []
