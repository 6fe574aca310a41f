"""Decisions of the production loop, as far as they say something of a run: gates, canaries, promotions, rollbacks.

The log is `releases.jsonl` in the folder of releases (see `thresher.train.loop.releases`). It is read leniently here:
whoever looks at runs must not be stopped by a line that another version wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RELEASES = "releases.jsonl"


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log.

    Attributes:
        at: seconds since 1970; None where the line does not say.
        kind: `gated`, `canary_started`, `promoted`, …; `release`: the id that it is about.
        figures: numbers and words behind it, by dotted name.
        places: every text in the line that looks like a path, to find the run by.
    """

    kind: str
    release: str = ""
    at: float | None = None
    who: str = ""
    reasons: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)
    places: tuple[str, ...] = ()


def read_decisions(folder: Path) -> tuple[list[Decision], list[str]]:
    """The decisions in a folder of releases, oldest first, and what could not be read of them."""
    path = folder / RELEASES
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path} cannot be read: {error.strerror or error}"]
    found, problems = [], []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            found.append(_decision(record))
        elif line.strip():
            problems.append(f"{path}:{number} is no decision")
    return found, problems


def about(decisions: Sequence[Decision], run: Path) -> list[Decision]:
    """Those that are about releases which were made of what lies in a run's folder, or of a run's weights file."""
    inside = str(run.resolve())
    own = {
        each.release
        for each in decisions
        if each.release and any(place == inside or place.startswith(f"{inside}/") for place in each.places)
    }
    return [each for each in decisions if each.release in own]


def _decision(record: Mapping[str, Any]) -> Decision:
    at = record.get("at")
    reasons = record.get("reasons")
    figures = record.get("figures")
    brought = {name: record.get(name) for name in ("made", "figures")}
    return Decision(
        kind=str(record["kind"]),
        release=str(record.get("release") or ""),
        at=float(at) if isinstance(at, int | float) else None,
        who=str(record.get("who") or ""),
        reasons=tuple(map(str, reasons)) if isinstance(reasons, list) else (),
        figures=dict(_figures(figures)) if isinstance(figures, Mapping) else {},
        places=tuple(dict.fromkeys(_places(brought))),
    )


def _figures(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", value


def _places(value: Any) -> Iterator[str]:
    """Paths in a record; what stands before the colon of a policy's spec (`hf:/…`) is left out."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _places(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _places(inner)
    elif isinstance(value, str) and "/" in value:
        at = value.find("/")
        yield value[at:] if value[:at].endswith(":") else value
