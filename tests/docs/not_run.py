"""The commands of pages that no test runs: not_run.toml, each with its reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class NotRun:
    page: str
    command: str
    """As it stands on the page, without a comment behind it; of a program, its first line."""
    reason: str


@cache
def entries() -> tuple[NotRun, ...]:
    listed = tomllib.loads(Path(__file__).with_name("not_run.toml").read_text("utf-8"))
    return tuple(NotRun(**entry) for entry in listed.get("not_run", []))
