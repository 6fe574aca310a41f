"""Numbered directories of a derived index: built aside, switched by one row in the record, removed afterwards."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

_QUARANTINED = ".quarantined-"


class Generations:
    """The directories under `tantivy/` or `chroma/`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, generation: int) -> Path:
        """The directory of a generation."""
        return self._root / str(generation)

    def fresh(self, generation: int) -> Path:
        """An empty place for a generation: leftovers of a build that died are removed."""
        path = self.path(generation)
        shutil.rmtree(path, ignore_errors=True)
        self._root.mkdir(parents=True, exist_ok=True)
        self._marker(path).unlink(missing_ok=True)
        return path

    def quarantine(self, generation: int) -> Path | None:
        """Rename a generation aside so that nothing opens it again; returns where it went, None if it was gone."""
        path = self.path(generation)
        self._marker(path).unlink(missing_ok=True)
        if not path.exists():
            return None
        aside = path.with_name(f"{path.name}{_QUARANTINED}{time.time_ns() // 1_000_000}")
        path.rename(aside)
        return aside

    def keep_only(self, generation: int, *, quarantined: bool) -> None:
        """Remove every other generation, and the quarantined ones unless they are to stay."""
        if not self._root.is_dir():
            return
        for entry in self._root.iterdir():
            if entry.name in (str(generation), f"{generation}.open", f"{generation}.log"):
                continue
            if _QUARANTINED in entry.name and quarantined:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    @staticmethod
    def _marker(path: Path) -> Path:
        return path.with_name(f"{path.name}.open")
