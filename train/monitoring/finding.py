"""Where runs are: below which folders, and without reading again what has not changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from thresher.train.monitoring.log import LOG_NAME
from thresher.train.monitoring.runs import BUILTIN, ROLLOUTS, WEIGHTS, Run, is_run, read_run
from thresher.train.monitoring.states import FAILURE, held
from thresher.train.trainer.evaluating import EVALUATIONS
from thresher.train.trainer.folder import LOCK
from thresher.train.trainer.settings_files import FILE

DEPTH = 4
"""Folders below the given one that are looked into."""
_OWN = frozenset({"checkpoints", "model", "adapter", "adapters", "plots", "node_modules", "__pycache__"})
"""Folders that hold parts of a run, or nothing of the kind."""


def find_runs(places: Iterable[Path], *, depth: int = DEPTH) -> list[Path]:
    """Folders of runs, and logs of runs of the builtin policy, at and below these places; each once, by path.

    Links to folders are not followed below a place, nor are hidden folders. What may not be read is passed over.
    """
    found: dict[Path, Path] = {}
    for place in places:
        if place.is_file():
            if is_run(place):
                _add(found, place.parent if place.name == LOG_NAME else place)
            continue
        root = len(place.parts)
        for folder, inner, files in os.walk(place):
            here = Path(folder)
            deep = len(here.parts) - root >= depth
            inner[:] = [] if deep else sorted(name for name in inner if name not in _OWN and not name.startswith("."))
            if is_run(here):
                _add(found, here)
            for name in sorted(files):
                if name.endswith(BUILTIN) and is_run(here / name):
                    _add(found, here / name)
    return list(found.values())


def _add(found: dict[Path, Path], path: Path) -> None:
    found.setdefault(path.resolve(), path)


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: tuple[tuple[int, int], ...]
    run: Run


class Reader:
    """Reads runs again and again; one of which no file has changed is not read anew."""

    def __init__(self) -> None:
        self._kept: dict[Path, _Kept] = {}

    def read(self, path: Path) -> Run:
        """The run as it is now."""
        stamp = _stamp(path)
        kept = self._kept.get(path)
        if kept is None or kept.stamp != stamp or held(_lock(path)) != (kept.run.state == "running"):
            kept = self._kept[path] = _Kept(stamp, read_run(path))
        return kept.run

    def read_all(self, paths: Iterable[Path]) -> list[Run]:
        """Runs, the one that was written to last first. Those of one name are told apart by the folders they are in."""
        return _told_apart(sorted((self.read(path) for path in paths), key=lambda run: -run.updated))


def _told_apart(runs: list[Run]) -> list[Run]:
    names = [run.name for run in runs]
    return [
        replace(run, name=f"{run.path.resolve().parent.name}/{run.name}") if names.count(run.name) > 1 else run
        for run in runs
    ]


def _lock(path: Path) -> Path:
    return path / LOCK if path.is_dir() else path


def _stamp(path: Path) -> tuple[tuple[int, int], ...]:
    """Time and size of every file that a run is read from."""
    if path.is_dir():
        names = (LOG_NAME, EVALUATIONS, ROLLOUTS, FILE, FAILURE, WEIGHTS, "checkpoints", "model/config.json", LOCK)
        files = [path / name for name in names]
    else:
        files = [path, path.with_name(path.name.removesuffix(BUILTIN) + ".json")]
    stamps = []
    for file in files:
        try:
            told = file.stat()
            stamps.append((told.st_mtime_ns, told.st_size))
        except OSError:
            stamps.append((0, -1))
    return tuple(stamps)
