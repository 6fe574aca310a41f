"""Plain text, markdown and reStructuredText: kept as written; markdown and rst give their first heading as title."""

from __future__ import annotations

import re

from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.encoding import decode

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:\s*(['\"]?)(?P<title>.+?)\1\s*$", re.MULTILINE)
_ATX = re.compile(r"^#{1,6}[ \t]+(?P<title>.+?)[ \t#]*$")
_UNDERLINE = re.compile(r"^(=+|-+|~+|\*+|#+|\^+)\s*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_TITLE_LINES = 200


def extract_text(data: bytes, *, headings: bool) -> Extracted:
    """The file as text.

    Args:
        headings: whether the format has headings (markdown, rst), so that the first one is the title.

    Raises:
        NoText: it is empty or whitespace only.
        Unsupported: it is binary.
    """
    text = normalise(decode(data))
    if not text.strip():
        raise NoText("the file is empty" if not data else "the file holds only whitespace")
    return Extracted(text, _title(text) if headings else "")


def _title(text: str) -> str:
    front = _FRONT_MATTER.match(text)
    if front:
        named = _FRONT_TITLE.search(front.group(1))
        if named:
            return one_line(named["title"])
        text = text[front.end() :]
    fenced = False
    previous = ""
    for line in text.split("\n", _TITLE_LINES)[:_TITLE_LINES]:
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            heading = _ATX.match(line)
            if heading:
                return one_line(heading["title"])
            if previous.strip() and _UNDERLINE.match(line) and len(line.rstrip()) >= len(previous.strip()) > 2:
                return one_line(previous)
        previous = line
    return ""
