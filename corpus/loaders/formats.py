"""Which loader reads which file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from thresher.corpus.loaders.base import Unsupported


class Format(StrEnum):
    """What a file is read as."""

    TEXT = "text"
    MARKUP = "markup"  # text with headings: markdown, reStructuredText
    HTML = "html"
    PDF = "pdf"
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    JSONL = "jsonl"


SUFFIXES = {
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
    ".md": Format.MARKUP,
    ".markdown": Format.MARKUP,
    ".rst": Format.MARKUP,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".pdf": Format.PDF,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}

# Parsers of these run in a child process: their C libraries meet hostile input and can crash, hang or fill the memory.
ISOLATED = frozenset({Format.HTML, Format.PDF})


def format_of(path: Path) -> Format:
    """The format by suffix; a file without one (README, LICENSE) is text.

    Raises:
        Unsupported: no loader reads this suffix.
    """
    suffix = path.suffix.lower()
    if not suffix:
        return Format.TEXT
    if suffix not in SUFFIXES:
        raise Unsupported(f"no loader for {suffix} files; readable are {', '.join(sorted(SUFFIXES))}")
    return SUFFIXES[suffix]
