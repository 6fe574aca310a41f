"""The parts of a passage: prose, rows of tables, pairs of a name and a value; and its prose without markup.

Everything keeps its place in the passage, so that a quote can be taken byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_LINE = re.compile(r"[^\n\f]+")
_PAIR = re.compile(r"^[-*\s]*\**([A-Za-z][A-Za-z _-]{1,30}?)\**:\**\s+(\S.{0,120})$")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+(?:\.\d+)*\.?)\s+")
_RULE = re.compile(r"^[\s|:=-]+$")
_MARKUP = re.compile(r"!?\[([^\]]+)\]\([^)\s]*\)|[*`]+|(?<!\w)_+|_+(?!\w)|\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”)]?\s+(?=[A-Z\"“(])")
_NO_END = re.compile(r"(?:^|[\s(])(?:[A-Z]|Dr|Mr|Mrs|Ms|St|Prof|Capt|Cllr|No|vs|U\.S|Inc|Jr|Sr|c)\.[\"”)]?$")

Kind = Literal["heading", "prose", "row", "pair"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a passage, `[start, end)`. A pair has its key and value; a row its cells."""

    kind: Kind
    start: int
    end: int
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plain:
    """Text without markup, with single blanks; `origin[i]` is where its character i stood, `origin[len]` the end."""

    text: str
    origin: tuple[int, ...]

    def raw(self, start: int, end: int) -> tuple[int, int]:
        """The place, in the text as it was, of a part of this one."""
        return self.origin[start], self.origin[end - 1] + 1 if end > start else self.origin[start]


def blocks(text: str) -> Iterator[Block]:
    """The parts of a passage in order; lines of prose that follow each other are one."""
    prose: tuple[int, int] | None = None
    at = 0
    for match in _LINE.finditer(text):
        gap = text[at : match.start()]
        at = match.end()
        line, start, end = match.group(), match.start(), match.end()
        kind, cells = _kind(line)
        bullet = _BULLET.match(line)
        if prose is not None and (kind != "prose" or bullet or gap.count("\n") > 1 or "\f" in gap):
            yield Block("prose", *prose)
            prose = None
        if kind != "prose":
            if kind != "row" or cells:
                yield Block(kind, start, end, cells)
        elif prose is None:
            prose = (start + (bullet.end() if bullet else 0), end)
        else:
            prose = (prose[0], end)
    if prose is not None:
        yield Block("prose", *prose)


def _kind(line: str) -> tuple[Kind, tuple[str, ...]]:
    stripped = line.strip()
    if stripped.startswith("#"):
        return "heading", ()
    if "|" in stripped:
        if _RULE.match(stripped):
            return "row", ()
        cells = tuple(plain(cell).text.strip() for cell in stripped.strip("|").split("|"))
        return "row", cells if any(cells) else ()
    if pair := _PAIR.match(stripped):
        return "pair", (pair[1].strip(), plain(pair[2]).text.strip().strip("*").strip())
    return ("prose", ()) if stripped else ("row", ())


def plain(text: str, offset: int = 0) -> Plain:
    """Text without emphasis, code marks and the targets of links; its places count from `offset`."""
    kept: list[str] = []
    origin: list[int] = []
    at = 0
    for match in _MARKUP.finditer(text):
        _keep(text, at, match.start(), kept, origin)
        if match.group().isspace():
            if kept and kept[-1] != " ":
                kept.append(" ")
                origin.append(match.start())
        elif match[1] is not None:
            _keep(text, match.start(1), match.end(1), kept, origin)
        at = match.end()
    _keep(text, at, len(text), kept, origin)
    return Plain("".join(kept), tuple(place + offset for place in (*origin, len(text))))


def _keep(text: str, start: int, end: int, kept: list[str], origin: list[int]) -> None:
    for place in range(start, end):
        if text[place] not in "*`":
            kept.append(text[place])
            origin.append(place)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of plain text are; an initial or a title ends none."""
    found = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _NO_END.search(text[start : match.start()]):
            continue
        found.append((start, match.start() + len(match.group().rstrip())))
        start = match.end()
    if text[start:].strip():
        found.append((start, len(text.rstrip())))
    return found
