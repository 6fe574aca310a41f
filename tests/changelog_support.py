"""CHANGELOG.md by its sections."""

from __future__ import annotations

import re
from dataclasses import dataclass

from imports_support import ROOT


@dataclass(frozen=True)
class Section:
    """A version, the day of its release (empty where there was none), and what is said of it."""

    name: str
    date: str
    text: str


def sections() -> list[Section]:
    """All sections, newest first, as the file has them."""
    parts = re.split(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for head, text in zip(parts[1::2], parts[2::2], strict=True):
        match = re.fullmatch(r"\[([^]]+)\](?: - (\d{4}-\d\d-\d\d))?", head)
        assert match, f"CHANGELOG.md: '## {head}' is not '## [VERSION] - YYYY-MM-DD' or '## [Unreleased]'"
        found.append(Section(match[1], match[2] or "", text.strip()))
    return found
