"""The rows of an evaluation, kept as it goes, so that one that was interrupted goes on where it was.

`rows.jsonl` begins with a header that says what is measured: systems, settings and sets. Each line after it is one
question of a set as all systems answered it. Only an evaluation of the same goes on from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thresher.train.errors import TrainError
from thresher.train.evaluation.evaluation import Row
from thresher.train.evaluation.observing import Observed
from thresher.train.lines import LineFile

ROWS = "rows.jsonl"
_OBJECT, _SCHEMA = "evaluation_rows", 1


class ResumeError(TrainError):
    """A folder holds rows that this evaluation cannot go on from."""

    code = "cannot_resume"


@dataclass
class KeptSet:
    """What is known of a set from before.

    Attributes:
        rows: by question id, what each system did.
        seconds: time that its questions took; `prepare_seconds`: time that its corpus took at first.
    """

    rows: dict[str, dict[str, Observed]] = field(default_factory=dict)
    seconds: float = 0.0
    prepare_seconds: float | None = None


class Rows:
    """Rows from before, and where new ones are kept; without a file nothing is."""

    def __init__(self, kept: Mapping[str, KeptSet], file: LineFile | None) -> None:
        self._kept = kept
        self._file = file

    def of(self, name: str) -> KeptSet:
        """What is known of a set. A question on which a system failed is not: it is asked again."""
        return self._kept.get(name, KeptSet())

    def keep(self, name: str, row: Row, *, seconds: float, prepare_seconds: float) -> None:
        """Keep a row of a set, whose questions have taken so many seconds by now.

        Raises:
            OSError: it cannot be written.
        """
        if self._file is not None:
            record = {"set": name, "seconds": seconds, "prepare_seconds": prepare_seconds, "row": row.as_dict()}
            self._file.append(_line(record), sync=False)


@contextmanager
def kept_rows(folder: Path | None, header: Mapping[str, Any], *, fresh: bool = False) -> Iterator[Rows]:
    """Go on from the rows in a folder, or begin there; `fresh` throws away what is there.

    Raises:
        ResumeError: what is there was measured otherwise, or another evaluation is writing it.
        OSError: the folder cannot be written.
    """
    if folder is None:
        yield Rows({}, None)
        return
    path = folder / ROWS
    try:
        file = LineFile(path)
    except BlockingIOError:
        raise ResumeError(f"another evaluation is writing {path}: wait for it, or name another folder") from None
    try:
        wanted = {"object": _OBJECT, "schema": _SCHEMA, **json.loads(json.dumps(header))}
        if fresh:
            file.clear()
        lines = path.read_bytes().splitlines()
        if not lines:
            file.append(_line(wanted), sync=True)
        yield Rows(_read(path, lines, wanted), file)
    finally:
        file.close()


def _read(path: Path, lines: Sequence[bytes], wanted: Mapping[str, Any]) -> dict[str, KeptSet]:
    kept: dict[str, KeptSet] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if number == 1:
                _check(path, record, wanted)
                continue
            own = kept.setdefault(record["set"], KeptSet())
            own.seconds = max(own.seconds, record["seconds"])
            if own.prepare_seconds is None:
                own.prepare_seconds = record["prepare_seconds"]
            systems = {name: Observed.from_dict(data) for name, data in record["row"]["systems"].items()}
            if any(observed.error is not None for observed in systems.values()):
                own.rows.pop(record["row"]["id"], None)
            else:
                own.rows[record["row"]["id"]] = systems
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResumeError(
                f"{path}:{number} is no row of an evaluation ({error}); name another folder, or start over with --fresh"
            ) from error
    return kept


def _check(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if differing:
        what = ", ".join(_what(name, found.get(name), wanted.get(name)) for name in differing)
        raise ResumeError(
            f"{path} holds rows of another evaluation: {what}; name another folder, or start over with --fresh"
        )


def _what(name: str, found: Any, wanted: Any) -> str:
    """What differs, in few words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        inner = next(key for key in {**found, **wanted} if found.get(key) != wanted.get(key))
        return f"{name}.{inner} was {found.get(inner)!r} and is {wanted.get(inner)!r}"
    if isinstance(found, list | None) or isinstance(wanted, list):
        return f"other {name}"
    return f"{name} was {found!r} and is {wanted!r}"


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
