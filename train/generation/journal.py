"""The folder of a run: what was judged is kept as it comes, and the set is put in its place at the end, whole.

While a run goes on, `generating.jsonl` holds its settings and a line for every candidate that was judged; the same
command goes on from there. At the end the folder holds `queries.jsonl`, `rejected.jsonl` and `report.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from thresher.corpus.paths import replace_file
from thresher.train.generation.errors import GenerationError
from thresher.train.lines import LineFile, write_lines
from thresher.train.tasks.task import QUERIES

JOURNAL = "generating.jsonl"
REJECTED = "rejected.jsonl"
REPORT = "report.json"


class Journal:
    """Open while a run goes on. `judged` holds the lines of the run before, by the key of their candidate.

    Raises:
        GenerationError: the folder holds a set already, or a run with other settings, or another process writes to it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self._folder = folder
        self._path = folder / JOURNAL
        self.judged: dict[str, dict[str, Any]] = {}
        if not overwrite and (folder / QUERIES).exists() and not self._path.exists():
            raise GenerationError(f"{folder} holds a set already: name another folder, or add --overwrite")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = LineFile(self._path)
        except BlockingIOError as error:
            raise GenerationError(f"another process makes tasks in {folder}: wait for it, or stop it") from error
        except OSError as error:
            raise GenerationError(f"cannot write to {folder}: {error.strerror or error}") from error
        try:
            if overwrite:
                os.truncate(self._path, 0)  # not before it is locked: another process may be at it
            self._resume(settings)
        except BaseException:
            self._file.close()
            raise

    def _resume(self, settings: Mapping[str, Any]) -> None:
        try:
            lines = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
            before, judged = lines[0]["settings"] if lines else {}, {line["key"]: line for line in lines[1:]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GenerationError(
                f"{self._path} holds what no run wrote: move it away, or add --overwrite to begin anew"
            ) from error
        if not judged:  # nothing is lost by other settings
            os.truncate(self._path, 0)
            self.add([{"settings": dict(settings)}])
            return
        changed = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
        if changed:
            raise GenerationError(
                f"{self._folder} holds a run that was begun with other settings ({', '.join(changed)}): give the same "
                "ones to go on with it, or --overwrite to begin anew"
            )
        self.judged = judged

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Keep what was judged: it is on the disk when this returns."""
        text = "".join(f"{json.dumps(line, ensure_ascii=True)}\n" for line in lines)
        self._file.append(text.encode("ascii"), sync=True)

    def finish(
        self, tasks: Iterable[dict[str, Any]], rejected: Iterable[dict[str, Any]], report: dict[str, Any]
    ) -> None:
        """Put the set in its place, and end the run."""
        write_lines(self._folder / REJECTED, rejected)
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        # A model may have written what UTF-8 has no form for, a lone surrogate: no reason to fail at the end.
        replace_file(self._folder / REPORT, text.encode("utf-8", "replace").decode("utf-8"))
        write_lines(self._folder / QUERIES, tasks)
        self._path.unlink()

    def close(self) -> None:
        """Let others write."""
        with suppress(OSError):
            self._file.close()
