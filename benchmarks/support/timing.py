"""Measuring: latencies, memory, and child processes that measure one system each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, float]
_HERE = Path(__file__).resolve().parents[1]


def latencies(work: Callable[[int], object], repeat: int, *, warm: int = 10) -> Row:
    """p50, p95 and mean of `work(i)` in milliseconds, i from 0 to `repeat`; the first few are run twice."""
    for i in range(min(warm, repeat)):
        work(i)
    taken = []
    for i in range(repeat):
        started = time.perf_counter()
        work(i)
        taken.append((time.perf_counter() - started) * 1e3)
    return summary(taken)


def summary(milliseconds: Sequence[float]) -> Row:
    """p50, p95, mean and worst of some times, in milliseconds."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {
        "p50": round(float(p50), 2),
        "p95": round(float(p95), 2),
        "mean": round(float(np.mean(milliseconds)), 2),
        "max": round(max(milliseconds), 2),
        "n": len(milliseconds),
    }


def recall_at_10(found: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> float:
    """Mean share of each question's ten true neighbours among the first ten found."""
    return round(float(np.mean([len(set(a[:10]) & set(b[:10])) / 10 for a, b in zip(found, truth, strict=True)])), 4)


def resident_mb() -> Row:
    """Memory of this process and its children now: `rss` in all, of it `anonymous` (not file cache), and `peak`."""
    total: dict[str, float] = {"VmRSS": 0.0, "RssAnon": 0.0, "VmHWM": 0.0}
    for pid in _family(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            name, _, value = line.partition(":")
            if name in total:
                total[name] += int(value.split()[0]) / 1024
    return {
        "rss": round(total["VmRSS"], 1),
        "anonymous": round(total["RssAnon"], 1),
        "peak": round(total["VmHWM"], 1),
    }


def _family(pid: int) -> list[int]:
    family = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            family += [p for child in (task / "children").read_text().split() for p in _family(int(child))]
        except FileNotFoundError:
            continue
    return family


def in_child(module: str, arguments: Sequence[str], *, timeout_s: float = 7_200) -> dict[str, Any]:
    """Run a module of this package with these arguments; the JSON of its last line, or {"error": …}."""
    started = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-m", f"support.{module}", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=timeout_s,
        env=child_environment(),
    )
    last = child.stdout.strip().splitlines()[-1:]
    if child.returncode or not last:
        return {"error": f"ended with status {child.returncode}"}
    result: dict[str, Any] = json.loads(last[0])
    return {**result, "measured_in_s": round(time.perf_counter() - started, 1)}


def child_environment() -> Mapping[str, str]:
    """The environment of a measured process: it finds this package, BLAS does not compete, nothing is fetched."""
    path = os.pathsep.join([str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = os.environ.get("OMP_NUM_THREADS", "2")
    return {**os.environ, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}


def bytes_under(path: Path) -> int:
    """Bytes of all files under `path`."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
