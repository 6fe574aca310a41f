"""Glob patterns: which part is fixed, and which names below it match.

`*`, `?` and `[…]` match inside one name; `**` as a name of its own matches any number of folders, none included.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

_MAGIC = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    """Whether the text holds any of `*`, `?` and `[`."""
    return _MAGIC.search(text) is not None


@dataclass(frozen=True, slots=True)
class Pattern:
    """The names below a folder that a pattern matches.

    Attributes:
        fixed: the folder before the first name with a wildcard, as the user wrote it.
        parts: the rest, one name each.
    """

    fixed: Path
    parts: tuple[str, ...]

    def matches(self, name: str) -> bool:
        """Whether a POSIX path relative to the fixed part matches."""
        return _match(self.parts, name.split("/"), below=False)

    def may_match_below(self, folder: str) -> bool:
        """Whether something inside this folder (relative to the fixed part; `.` is the part itself) could match."""
        return folder in ("", ".") or _match(self.parts, folder.split("/"), below=True)


def split_pattern(text: str) -> Pattern:
    """A pattern with at least one wildcard."""
    parts = PurePath(text).parts
    first = next(place for place, part in enumerate(parts) if is_pattern(part))
    rest = parts[first:]
    # A trailing ** means every file below.
    return Pattern(Path(*parts[:first]), (*rest, "*") if rest[-1] == "**" else rest)


def _match(parts: Sequence[str], names: Sequence[str], *, below: bool) -> bool:
    """Whether all names match all parts; with `below`, whether the names match a beginning of the parts."""
    # States are places in `parts`; `**` may stand for no name at all.
    states = _closure({0}, parts)
    for name in names:
        following = set()
        for place in states:
            if place == len(parts):
                continue
            if parts[place] == "**":
                following.add(place)
            elif fnmatch.fnmatchcase(name, parts[place]):
                following.add(place + 1)
        states = _closure(following, parts)
    return any(place < len(parts) for place in states) if below else len(parts) in states


def _closure(states: set[int], parts: Sequence[str]) -> set[int]:
    closed = set(states)
    for place in states:
        while place < len(parts) and parts[place] == "**":
            place += 1
            closed.add(place)
    return closed
