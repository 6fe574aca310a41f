"""Reading JSON that a model nearly got right. Only what has one reading is read; the rest is left to the engine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'"}
CONTROLS = "control characters in a string"
_STRICT, _WITH_CONTROLS = json.JSONDecoder(), json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Read:
    """A value that was read.

    Attributes:
        end: where in the text it ends.
        repairs: what was not JSON in it, in words; empty when all of it was.
        open: how many closing brackets were missing at the end of the text.
    """

    value: Any
    end: int
    repairs: tuple[str, ...] = ()
    open: int = 0


def read_value(text: str, start: int = 0) -> Read | None:
    """The JSON value at `start`, mended if need be; None if it cannot be read, or not in one way only.

    Mended are single, curly and missing quotes (around keys), trailing commas, Python's constants, line breaks inside
    strings, escapes that JSON does not know (`\\d`), and closing brackets that are missing at the end.
    """
    start = _after_space(text, start)
    for decoder, repairs in ((_STRICT, ()), (_WITH_CONTROLS, (CONTROLS,))):
        try:
            value, end = decoder.raw_decode(text, start)
            return Read(value, end, repairs)
        except (ValueError, RecursionError):
            continue
    reader = _Reader(text, start)
    try:
        value = reader.value(0)
    except (_Broken, RecursionError):
        return None
    return Read(value, reader.at, tuple(dict.fromkeys(reader.repairs)), reader.open)


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


class _Broken(Exception):
    """There is no certain reading."""


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.repairs: list[str] = []
        self.open = 0

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise _Broken
        self._skip()
        character = self._next()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character in _QUOTES:
            return self._string()
        number = _NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            try:
                return json.loads(number[0])
            except ValueError as error:  # more digits than Python reads
                raise _Broken from error
        word = _WORD.match(self.text, self.at)
        if word and word[0] in _CONSTANTS:
            self.at = word.end()
            if word[0][0].isupper():
                self.repairs.append("Python's constants")
            return _CONSTANTS[word[0]]
        raise _Broken

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while not self._closed("}", first=not found):
            key = self._key()
            self._skip()
            if self._next() != ":":
                raise _Broken
            self.at += 1
            found[key] = self.value(depth + 1)
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._closed("]", first=not found):
            found.append(self.value(depth + 1))
        return found

    def _closed(self, bracket: str, *, first: bool) -> bool:
        """Go past what stands between two items, or past the end; true at the end."""
        self._skip()
        if self._next() == "" and not first:
            self.open += 1
            self.repairs.append("missing closing brackets")
            return True
        if self._next() == bracket:
            self.at += 1
            return True
        if first:
            return False
        if self._next() != ",":
            raise _Broken
        self.at += 1
        self._skip()
        if self._next() == bracket:
            self.at += 1
            self.repairs.append("a trailing comma")
            return True
        return False

    def _key(self) -> str:
        if self._next() in _QUOTES:
            return self._string()
        word = _WORD.match(self.text, self.at)
        if not word:
            raise _Broken
        self.at = word.end()
        self.repairs.append("keys without quotes")
        return word[0]

    def _string(self) -> str:
        opening = self._next()
        closing = _QUOTES[opening]
        if opening != '"':
            self.repairs.append("quotes that are not JSON's")
        parts: list[str] = []
        self.at += 1
        while True:
            character = self._next()
            if character == "":
                raise _Broken  # nobody knows how it would have gone on
            self.at += 1
            if character == closing:
                return "".join(parts)
            if character == "\\":
                parts.append(self._escape())
                continue
            if ord(character) < 32:
                self.repairs.append(CONTROLS)
            parts.append(character)

    def _escape(self) -> str:
        character = self._next()
        self.at += 1
        if character == "u" and re.match(r"[0-9a-fA-F]{4}", self.text[self.at : self.at + 4]):
            self.at += 4
            return self._unicode(self.text[self.at - 4 : self.at])
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "":
            raise _Broken
        self.repairs.append("escapes that JSON does not know")
        return "\\" + character

    def _unicode(self, digits: str) -> str:
        low = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", self.text[self.at : self.at + 6])
        if digits[0] in "dD" and digits[1] in "89abAB" and low:
            self.at += 6
            return str(json.loads(f'"\\u{digits}\\u{low[1]}"'))
        return chr(int(digits, 16))

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip(self) -> None:
        self.at = _after_space(self.text, self.at)
