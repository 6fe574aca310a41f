"""Trajectories on disk: one file a search, `THRESHER_HOME/traces/<id>.jsonl`.

An answer in words is written after the search and is no part of its trajectory; it is kept beside it, in
`<id>.answer.json`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.paths import home

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from thresher.engine.requests import Answer, SearchResult
    from thresher.engine.trajectory import Trajectory

_VALIDATION = re.compile(r": \d+ validation errors? for Trajectory$")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class TraceError(Exception):
    """There is no such trace, or its file is not one."""

    code = "trace_not_found"


def traces_directory() -> Path:
    """Where trajectories are kept."""
    return home() / "traces"


def trace_path(search_id: str) -> Path:
    """Where the trajectory of a search is kept, if it is."""
    return traces_directory() / f"{search_id}.jsonl"


def with_trace_saved(result: SearchResult, *, name_place: bool = True) -> SearchResult:
    """Keep the trajectory of a search; questions are private, so only the owner may read the folder.

    A disk that is full or a folder that cannot be written must not cost the result: then it carries a warning,
    with the folder's path if `name_place`.
    """
    from thresher.engine.trajectory import append_jsonl

    if result.trajectory is None:
        return result
    path = trace_path(result.id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        append_jsonl(path, [result.trajectory])
        if result.answer is not None:
            _answer_path(path).write_bytes(_answers().dump_json(result.answer))
    except (OSError, ValueError) as error:  # ValueError: something in it cannot be written as JSON
        for half in (path, _answer_path(path)):  # half a trajectory is none
            with suppress(OSError):
                half.unlink()
        place = f" to {path.parent}" if name_place else ""
        warning = f"the trace could not be saved{place}: {getattr(error, 'strerror', None) or type(error).__name__}"
        return replace(result, warnings=(*result.warnings, warning))
    return result


def remove_trace(search_id: str) -> None:
    """Remove the trajectory of a search, and its answer, if they are kept."""
    path = trace_path(search_id)
    for each in (path, _answer_path(path)):
        each.unlink(missing_ok=True)


def recent_traces() -> list[Path]:
    """Trace files, newest first."""
    directory = traces_directory()
    found = []
    if directory.is_dir():
        for path in directory.glob("*.jsonl"):
            try:
                found.append((path.stat().st_mtime_ns, path.name, path))
            except OSError:  # removed meanwhile
                continue
    return [path for *_, path in sorted(found, reverse=True)]


def find_trace(name: str) -> Path:
    """The file behind a path, a search id, the beginning of one, or `last`.

    Raises:
        TraceError: nothing fits, or several do.
    """
    if os.sep in name or name.endswith(".jsonl"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise TraceError(f"there is no trace file {path}")
        return path
    traces = recent_traces()
    if name == "last":
        if not traces:
            raise TraceError("there are no traces yet; run `thresher search` first")
        return traces[0]
    if not _ID.fullmatch(name):
        raise TraceError(f"{name!r} is neither a search id nor a file; `thresher trace ls` lists the ids")
    fits = [path for path in traces if path.stem.startswith(name)]
    exact = [path for path in fits if path.stem == name]
    if len(exact or fits) != 1:
        what = f"{len(fits)} traces begin with {name!r}" if fits else f"there is no trace {name!r}"
        raise TraceError(f"{what}; `thresher trace ls` lists them")
    return (exact or fits)[0]


def read_traces(path: Path) -> Iterator[Trajectory]:
    """The trajectories in a file.

    Raises:
        TraceError: it cannot be read, or a line is not a trajectory.
    """
    from thresher.engine.trajectory import read_jsonl

    try:
        yield from read_jsonl(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise TraceError(_VALIDATION.sub("", str(error).splitlines()[0])) from error


def read_answer(path: Path) -> Answer | None:
    """The answer that was kept beside a trace file; None if there is none.

    Raises:
        TraceError: it cannot be read, or is not one.
    """
    try:
        return _answers().validate_json(_answer_path(path).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TraceError(f"cannot read {_answer_path(path)}: {error.strerror or error}") from error
    except ValueError as error:
        raise TraceError(f"{_answer_path(path)} is not an answer: remove it to see the trace without one") from error


def _answer_path(path: Path) -> Path:
    return path.with_suffix(".answer.json")


@lru_cache(maxsize=1)
def _answers() -> TypeAdapter[Answer]:
    from pydantic import TypeAdapter

    from thresher.engine.requests import Answer

    return TypeAdapter(Answer)
