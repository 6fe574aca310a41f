"""Output: results on stdout, everything else on stderr, and the exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# C0 and C1 controls but tab and newline: a document must not be able to drive the terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


PIPE_WIDTH = 160


class ExitCode(IntEnum):
    """What a command's exit status means."""

    OK = 0
    ERROR = 1
    USAGE = 2
    PARTIAL = 3
    INSUFFICIENT = 4
    INTERRUPTED = 130


def out() -> Console:
    """Console on stdout. Made when needed, so that it follows whatever stdout is then."""
    from rich.console import Console

    # Into a pipe or a file, tables get room: 80 columns would cut ids that someone means to copy.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None)


def err() -> Console:
    """Console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def emit(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, indent=2, default=str)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(message: str) -> None:
    """Print a line for people on stderr."""
    err().print(clean(message), style="dim")


def warn(message: str) -> None:
    """Print a warning on stderr."""
    err().print(f"warning: {clean(message)}", style="yellow")


def clean(text: str) -> str:
    """Text fit for a terminal: control characters become the replacement character."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """Text cut to one line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: max(1, width - 1)].rstrip() + "…"


def table(*columns: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> Table:
    """An empty table in the house style; columns in `right` hold numbers, those in `whole` are never broken."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in whole)
    return made


def human_bytes(size: int) -> str:
    """A size in bytes, KB, MB or GB."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1_000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_000
    raise AssertionError("unreachable")


def plural(count: int, word: str, words: str = "") -> str:
    """`1 file`, `1,234 files`; `words` where the plural is not made by an s."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {words or word + 's'}"
