"""Which trigrams a text must contain for an RE2 pattern to match it.

The answer may be too weak (then more text is scanned than needed) but never too strong: whatever this parser does not
surely understand, it claims nothing about. Google Code Search's trigram index works the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_MAX_TERMS = 64
_MAX_DEPTH = 40
_REPEAT = re.compile(r"\{(\d+)(,\d*)?\}")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|([a-zA-Z]*)(?:-[a-zA-Z]*)?(:|\))))?")
_LITERAL_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
# Escapes that stand for no fixed character: classes and empty-width assertions.
_OPAQUE_ESCAPES = set("dDwWsSbBAzC")


@dataclass(frozen=True, slots=True)
class Need:
    """A condition on a text: a string it contains, or all / any of other conditions. `all` of nothing always holds."""

    type: Literal["text", "all", "any"]
    text: str = ""
    parts: tuple[Need, ...] = ()


ANYTHING = Need("all")


@dataclass(frozen=True, slots=True)
class Trigrams:
    """A condition on a text's trigrams: that it has one, or all / any of other conditions, at least one."""

    type: Literal["one", "all", "any"]
    gram: str = ""
    parts: tuple[Trigrams, ...] = ()


class _Unsure(Exception):
    """The pattern has something this parser does not model."""


def needed_trigrams(pattern: str, *, ignore_case: bool) -> Trigrams | None:
    """What the trigrams of every text that `pattern` matches satisfy; None if nothing is certain.

    Of a long pattern no more is asked than `_MAX_TERMS` trigrams: each costs a look-up, and few are enough.
    `pattern` must be one that RE2 accepts.
    """
    try:
        need, fold = _Parser(pattern).parse()
    except _Unsure:
        return None
    needed = _needed(need, fold or ignore_case)
    return _trimmed(needed, _MAX_TERMS) if needed is not None else None


class _Parser:
    """Recursive descent over RE2's syntax, collecting runs of literal characters."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._fold = False

    def parse(self) -> tuple[Need, bool]:
        """The whole pattern's need, and whether any part of it ignores case."""
        need = self._alternation(0)
        if self._at < len(self._pattern):
            raise _Unsure
        return need, self._fold

    def _alternation(self, depth: int) -> Need:
        if depth > _MAX_DEPTH:
            raise _Unsure
        branches = [self._concatenation(depth)]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._concatenation(depth))
        if len(branches) == 1:
            return branches[0]
        return Need("any", parts=tuple(branches))

    def _concatenation(self, depth: int) -> Need:
        needs: list[Need] = []
        run = ""

        def end_run() -> None:
            nonlocal run
            if run:
                needs.append(Need("text", run))
            run = ""

        while (char := self._peek()) not in ("", "|", ")"):
            literal, inner = self._atom(char, depth)
            minimum, repeated = self._repetition()
            if literal is None:
                end_run()
                if minimum > 0 and inner != ANYTHING:
                    needs.append(inner)
                continue
            if minimum > 0:
                run += literal
            if repeated:
                end_run()
        end_run()
        needs = [need for need in needs if need != ANYTHING]
        if len(needs) == 1:
            return needs[0]
        return Need("all", parts=tuple(needs))

    def _atom(self, char: str, depth: int) -> tuple[str | None, Need]:
        """(the character it stands for, or None; what it needs otherwise)."""
        if char == "(":
            return None, self._group(depth)
        if char == "[":
            self._character_class()
            return None, ANYTHING
        if char == "\\":
            return self._escape(), ANYTHING
        self._at += 1
        if char in ".^$":
            return None, ANYTHING
        if char in "*+?":
            raise _Unsure
        return char, ANYTHING

    def _group(self, depth: int) -> Need:
        opening = _GROUP.match(self._pattern, self._at)
        if opening is None:
            raise _Unsure
        flags, end = opening.group(1), opening.group(2)
        if flags and "i" in flags:
            # Taken for the whole pattern: a case-blind reading of a case-sensitive part only asks for less.
            self._fold = True
        self._at = opening.end()
        if end == ")":
            if self._peek() in ("*", "+", "?", "{"):
                raise _Unsure  # RE2 applies the repetition to what stands before the flags
            return ANYTHING
        need = self._alternation(depth + 1)
        if self._peek() != ")":
            raise _Unsure
        self._at += 1
        return need

    def _character_class(self) -> None:
        self._at += 1
        if self._peek() == "^":
            self._at += 1
        first = True
        while (char := self._peek()) != "]" or first:
            first = False
            if char == "":
                raise _Unsure
            if self._pattern.startswith("[:", self._at):
                close = self._pattern.find(":]", self._at + 2)
                if close < 0:
                    raise _Unsure
                self._at = close + 2
            elif char == "\\":
                if self._pattern[self._at + 1 : self._at + 2] in ("Q", "E", ""):
                    raise _Unsure
                self._at += 2
            else:
                self._at += 1
        self._at += 1

    def _escape(self) -> str | None:
        char = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if char in _LITERAL_ESCAPES:
            return _LITERAL_ESCAPES[char]
        if char in _OPAQUE_ESCAPES and char:
            return None
        if char in ("p", "P"):
            self._unicode_class()
            return None
        if char and char.isascii() and not char.isalnum():
            return char
        raise _Unsure  # \Q…\E, \x, octal and whatever else RE2 may accept

    def _unicode_class(self) -> None:
        if self._peek() == "{":
            close = self._pattern.find("}", self._at)
            if close < 0:
                raise _Unsure
            self._at = close + 1
        else:
            self._at += 1

    def _repetition(self) -> tuple[int, bool]:
        """(least number of times, whether there is a repetition at all) after an atom; takes all that follow."""
        minimum, repeated = 1, False
        while True:
            char = self._peek()
            counted = _REPEAT.match(self._pattern, self._at) if char == "{" else None
            if char in ("*", "?"):
                minimum, self._at = 0, self._at + 1
            elif char == "+":
                self._at += 1
            elif counted:
                minimum, self._at = min(minimum, int(counted.group(1))), counted.end()
            else:
                return minimum, repeated
            repeated = True

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]


def _needed(need: Need, fold: bool) -> Trigrams | None:
    if need.type == "text":
        grams = dict.fromkeys(gram for run in _certain_runs(need.text, fold) for gram in _trigrams(run))
        return Trigrams("all", parts=tuple(Trigrams("one", gram) for gram in grams)) if grams else None
    parts = [_needed(part, fold) for part in need.parts]
    certain = tuple(part for part in parts if part is not None)
    if not certain or (need.type == "any" and len(certain) < len(parts)):
        return None
    return Trigrams(need.type, parts=certain)


def _trimmed(needed: Trigrams, most: int) -> Trigrams | None:
    """A condition of at most `most` trigrams that holds wherever `needed` does; None if there is no such."""
    if needed.type == "one":
        return needed if most > 0 else None
    if needed.type == "any":
        branches = [_trimmed(part, most // len(needed.parts)) for part in needed.parts]
        kept = [part for part in branches if part is not None]
        return Trigrams("any", parts=tuple(kept)) if len(kept) == len(branches) else None
    kept = []
    for part in needed.parts:
        if (own := _trimmed(part, most)) is not None:
            kept.append(own)
            most -= _terms(own)
    return Trigrams("all", parts=tuple(kept)) if kept else None


def _terms(needed: Trigrams) -> int:
    return 1 if needed.type == "one" else sum(map(_terms, needed.parts))


def _certain_runs(text: str, fold: bool) -> list[str]:
    """Stretches of a literal whose trigrams the index surely holds if the text matches.

    The tokenizer stops at NUL (which the record never stores). Where case is ignored, RE2 also equates characters that
    the tokenizer keeps apart (`k` and the Kelvin sign, `s` and the long s), so only plain ASCII is certain.
    """
    uncertain = "[^\x01-\x7f]|[kKsS]" if fold else "\x00"
    return [run for run in re.split(uncertain, text) if len(run) >= 3]


def _trigrams(run: str) -> list[str]:
    return [run[i : i + 3] for i in range(len(run) - 2)]
