"""Reading other people's files record by record, with the line each of them stands on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from thresher.train.tasks.task import TaskError

_BLOCK = 1 << 20
_NEAR_END = 16
"""An error so few characters before the end of what was read may be a number or a word that was cut there."""


class Record:
    """A JSON object, and where it stands. Every getter raises TaskError where the field is not of its kind."""

    def __init__(self, fields: Any, where: str) -> None:
        if not isinstance(fields, dict):
            raise TaskError(f"{where}: a record is a JSON object, got {type(fields).__name__}")
        self.fields: dict[str, Any] = fields
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.fields.get(key) is not None

    def text(self, key: str, *, required: bool = True) -> str:
        """A text; an identifier may be a number."""
        value = self.fields.get(key)
        if value is None and not required:
            return ""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or (required and not value.strip()):
            raise self.error(f"{key} must be {'non-empty ' if required else ''}text, got {_short(value)}")
        return value

    def items(self, key: str, *, required: bool = True) -> list[Any]:
        """A list of anything."""
        value = self.fields.get(key)
        if value is None and not required:
            return []
        if not isinstance(value, list):
            raise self.error(f"{key} must be a list, got {_short(value)}")
        return value

    def records(self, key: str, *, required: bool = True) -> list[Record]:
        """A list of objects."""
        items = self.items(key, required=required)
        return [Record(item, f"{self.where}: {key}[{place}]") for place, item in enumerate(items)]

    def error(self, what: str) -> TaskError:
        """An error of this record."""
        return TaskError(f"{self.where}: {what}")


def json_records(path: Path) -> Iterator[Record]:
    """The objects of a JSON list, or of lines of JSON, read as a stream.

    Raises:
        TaskError: the file cannot be read, is not JSON, or holds something else than objects.
    """
    with opened(path) as file:
        first = _peek(file)
        if first != "[":
            yield from _lines(path, file)
            return
        for line, value in _items(path, file):
            yield Record(value, f"{path}:{line}")


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """A text file, open; what goes wrong with it is a TaskError."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield file
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8: {error}") from error


def answers_of(value: Any, where: str) -> tuple[str, ...]:
    """Answers given as one text, a number or a list of them; blank ones are none."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    texts = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise TaskError(f"{where}: an answer must be text, got {_short(item)}")
        texts.append(str(item).strip())
    return tuple(dict.fromkeys(text for text in texts if text))


def _lines(path: Path, file: TextIO) -> Iterator[Record]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise TaskError(f"{path}:{number}: not JSON: {error}") from error
            yield Record(value, f"{path}:{number}")


class _Window:
    """The part of a JSON file that is being read, and the line it begins on."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path, self._file = path, file
        self._text, self._place, self._ended = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """The next character that is not white space, and make it the first; empty at the end of the file."""
        while True:
            start = self._place
            while start < len(self._text) and self._text[start].isspace():
                start += 1
            self._move(start)
            if start < len(self._text) or self._ended:
                return self._text[start : start + 1]
            self._read(_BLOCK)

    def take(self, *wanted: str) -> str:
        """The next character, which has to be one of these."""
        found = self.peek()
        if found not in wanted or not found:
            if not found:
                raise self._error("the list has no end; was the file cut off?")
            raise self._error(f"expected {' or '.join(wanted)}, got {found!r}")
        self._place += 1
        return found

    def value(self) -> Any:
        """The next value. Whatever is cut off at the end of the window is tried again with more of the file."""
        size = _BLOCK
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._place)
            except RecursionError as error:
                raise self._error("it is nested too deeply") from error
            except json.JSONDecodeError as error:
                # A long text that is cut off is told of where it begins.
                cut = error.pos >= len(self._text) - _NEAR_END or error.msg.startswith("Unterminated string")
                if self._ended or not cut:
                    self._move(error.pos)
                    raise self._error(error.msg) from error
            else:
                if end < len(self._text) or self._ended:
                    self._move(end)
                    return value
            self._read(size)
            size *= 2

    def _move(self, place: int) -> None:
        self.line += self._text.count("\n", self._place, place)
        self._place = place

    def _read(self, size: int) -> None:
        more = self._file.read(size)
        self._text, self._place, self._ended = self._text[self._place :] + more, 0, not more

    def _error(self, what: str) -> TaskError:
        return TaskError(f"{self._path}:{self.line}: not JSON: {what}")


def _items(path: Path, file: TextIO) -> Iterator[tuple[int, Any]]:
    """(line, value) of each item of a JSON list."""
    window = _Window(path, file)
    window.take("[")
    if window.peek() == "]":
        return
    while True:
        window.peek()
        yield window.line, window.value()
        if window.take(",", "]") == "]":
            break
    if window.peek():
        raise TaskError(f"{path}:{window.line}: something follows the end of the list")


def _peek(file: TextIO) -> str:
    """The first character that is not white space; the file is then read from its beginning again."""
    while True:
        block = file.read(256)
        if not block or block.strip():
            file.seek(0)
            return block.lstrip()[:1]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, Mapping) else "an object"
    return text if len(text) <= 60 else f"{text[:60]}…"
