"""What Word and PowerPoint files share: names in their XML, dates and authors; and rows of tables as lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from thresher.corpus.loaders.base import normalise, one_line

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"


def table_lines(rows: Iterable[Sequence[str]]) -> str:
    """A line a row, cells between ` | `, as the HTML loader shows tables; rows without text are left out."""
    lines = (" | ".join(" ".join(cell.split()) for cell in row).rstrip(" |") for row in rows)
    return "\n".join(line for line in lines if line.strip())


def properties(core: Any) -> tuple[str, dict[str, str | int]]:
    """Title, and metadata: `author` and `modified` (ISO date), of a package's core properties."""
    found: dict[str, str | int] = {}
    title = author = ""
    modified: object = None
    with contextlib.suppress(Exception):  # dates that are none, for instance; the text is what counts
        title, author, modified = core.title or "", core.author or "", core.modified
    if author.strip() and author.strip().lower() not in ("python-docx", "python-pptx"):
        found["author"] = one_line(normalise(author))
    if isinstance(modified, datetime):
        found["modified"] = modified.date().isoformat()
    return one_line(normalise(title)), found
