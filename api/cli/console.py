"""Output: results on stdout, everything else on stderr, and the exit codes."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# C0 and C1 controls but tab and newline: a document must not be able to drive the terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


PIPE_WIDTH = 160
STDOUT = "standard output"


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
    """Print one JSON document on stdout. Numbers that JSON has no word for (NaN, the infinities) become null."""
    try:
        text = _dumps(document, ensure_ascii=False)
    except ValueError:
        document = _finite(document)
        text = _dumps(document, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = _dumps(document, ensure_ascii=True)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _dumps(document: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(document, ensure_ascii=ensure_ascii, indent=2, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key) if isinstance(key, float) else key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class NamedOutput:
    """Standard output whose errors say that it is meant: the system names no file where a write fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with _named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Hand everything to the system."""
        with _named():
            self._stream.flush()


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from error  # becomes a BrokenPipeError by its number


def abandon(stream: TextIO) -> None:
    """Give a stream up that cannot be written, or the interpreter would try once more, and complain, as it ends."""
    with suppress(OSError, ValueError):  # it may be closed, or no file of the system
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


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
