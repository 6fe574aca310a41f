"""Cuts a text into passages, along its structure, in linear time.

The text is read once as *atoms* (words, numbers, single symbols), each with an estimated token weight, and every gap
between two atoms gets a *break strength*: heading, paragraph, line, sentence, word, none. A passage then ends at the
strongest break within reach, near the target size. Passages are in order, do not overlap, hold every non-whitespace
character of the text, and start and end with a non-whitespace character.

Sizes are word pieces of the default embedder, MiniLM, which reads 256 of them and ignores the rest. A passage is
embedded together with its document's title, hence a target of 200 and a maximum of 256: the rest is for the title.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from thresher.corpus.documents import Span
from thresher.corpus.errors import UnknownChunker

CHUNKER_VERSION = "structure-1"
"""The chunker of new collections; a manifest records which one a collection has (see `load_chunker`)."""

TARGET_TOKENS = 200
MAX_TOKENS = 256
SMALLEST_TARGET, LARGEST_TARGET = 16, 8192
CHOICES = f"{CHUNKER_VERSION}, {CHUNKER_VERSION}:TOKENS (from {SMALLEST_TARGET} to {LARGEST_TARGET})"

# Whitespace longer than this is a break by itself: a passage must not carry a megabyte of blanks.
LONGEST_GAP = 512

_ATOM = re.compile(
    r"(?P<latin>[A-Za-zÀ-ÖØ-öø-ɏ]{1,20})"
    r"|(?P<digits>[0-9]{1,10})"
    r"|(?P<ideograph>[぀-ヿ㐀-䶿一-鿿가-힯豈-﫿\U00020000-\U0003FFFF])"
    r"|(?P<letters>[^\W\d_぀-ヿ㐀-䶿一-鿿가-힯豈-﫿\U00020000-\U0003FFFF]{1,8})"
    r"|\S"
)

# Hundredths of a token. Means over English prose under MiniLM's vocabulary, by length; in scripts that the vocabulary
# lacks, words fall apart into letters, and other tokenizers sit between one token a letter and one for three.
_LATIN = (0, 100, 100, 100, 107, 120, 120, 123, 128, 137, 143, 161, 175, 180, 228, 295, 400, 450, 500, 600, 700)
_DIGITS = (0, 100, 100, 130, 130, 269, 306, 388, 439, 480, 526)
_LETTERS = (0, 100, 100, 150, 200, 250, 300, 350, 400)
_ONE = 100


class Break(IntEnum):
    """How good a place between two atoms is to end a passage."""

    INSIDE = 0  # inside a grapheme: before a combining mark, around a joiner
    HARD = 1  # inside a word
    WORD = 2
    SENTENCE = 3
    LINE = 4
    PARAGRAPH = 5
    SECTION = 6  # before a markdown heading or at a page's end
    FORCED = 7


# How small a passage may be, as a share of the aim, for the sake of a break this strong.
_REACH = {
    Break.SECTION: 0.25,
    Break.PARAGRAPH: 0.5,
    Break.LINE: 0.6,
    Break.SENTENCE: 0.6,
    Break.WORD: 0.8,
    Break.HARD: 0.9,
    Break.INSIDE: 0.9,
}

_HEADING = re.compile(r"#{1,6}[ \t]")
_SENTENCE_ENDS = frozenset(".!?…։؟۔।॥")
_WIDE_SENTENCE_ENDS = frozenset("。！？｡")
_WIDE_PAUSES = frozenset("、，；：")
_CLOSERS = frozenset("\"')]}”’»」』）")
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


@dataclass(frozen=True, slots=True)
class _Atoms:
    """Columns, one row per atom; `weight[i]` is the sum of all weights before atom i, in hundredths of a token."""

    start: array[int]
    end: array[int]
    weight: array[int]
    breaks: bytearray  # breaks[i]: the break before atom i


class Chunker(Protocol):
    """Cuts texts into passages. Deterministic, thread-safe, and can be pickled."""

    @property
    def version(self) -> str:
        """The spec that gives this chunker again, in its one canonical form; what a manifest records."""

    def __call__(self, text: str) -> list[Span]:
        """The passages of a text, in order, as character offsets."""


@dataclass(frozen=True, slots=True)
class StructureChunker:
    """`chunk_text` with fixed sizes, in estimated tokens."""

    target_tokens: int = TARGET_TOKENS
    max_tokens: int = MAX_TOKENS

    @property
    def version(self) -> str:
        """`structure-1`, or `structure-1:TARGET` for a target that is not the default."""
        return CHUNKER_VERSION if self.target_tokens == TARGET_TOKENS else f"{CHUNKER_VERSION}:{self.target_tokens}"

    def __call__(self, text: str) -> list[Span]:
        """See `chunk_text`."""
        return chunk_text(text, target_tokens=self.target_tokens, max_tokens=self.max_tokens)


def load_chunker(spec: str) -> Chunker:
    """The chunker that `spec` names: `structure-1`, or `structure-1:TOKENS` for passages of about that size.

    The longest passage grows with the target (by 28 %, as 200 to 256). What an embedder reads of a passage is its own
    limit: MiniLM ignores all beyond 256 word pieces, so larger targets are for models with a longer window.

    Raises:
        UnknownChunker: this release has no such chunker; the message lists the choices.
    """
    name, colon, size = spec.partition(":")
    if name == CHUNKER_VERSION and not colon:
        return StructureChunker()
    if name == CHUNKER_VERSION and size.isascii() and size.isdigit() and len(size) <= 6:
        target = int(size)
        if SMALLEST_TARGET <= target <= LARGEST_TARGET:
            return StructureChunker(target, -(-target * MAX_TOKENS // TARGET_TOKENS))
    raise UnknownChunker(f"unknown chunker {spec!r}; choose one of: {CHOICES}")


def chunk_text(text: str, *, target_tokens: int = TARGET_TOKENS, max_tokens: int = MAX_TOKENS) -> list[Span]:
    """Passages of about `target_tokens`, never more than `max_tokens` as estimated by `estimate_tokens`.

    A text of at most `max_tokens` is one passage; one without any non-whitespace character has none.

    Raises:
        ValueError: unless SMALLEST_TARGET <= target_tokens <= max_tokens.
    """
    if not SMALLEST_TARGET <= target_tokens <= max_tokens:
        raise ValueError(f"need {SMALLEST_TARGET} <= target_tokens <= max_tokens, got {target_tokens} and {max_tokens}")
    atoms = _read_atoms(text)
    spans = []
    first, count = 0, len(atoms.start)
    while first < count:
        after = _cut(atoms, first, target_tokens * _ONE, max_tokens * _ONE)
        spans.append(Span(atoms.start[first], atoms.end[after - 1]))
        first = after
    return spans


def estimate_tokens(text: str) -> int:
    """About how many word pieces `text` has, rounded up; CJK counts one a character. What `chunk_text` measures by."""
    total = sum(_weigh(match) for match in _ATOM.finditer(text))
    return -(-total // _ONE)


def _read_atoms(text: str) -> _Atoms:
    start, end, weight = array("q"), array("q"), array("q", [0])
    breaks = bytearray()
    previous_end = total = 0
    for match in _ATOM.finditer(text):
        begin = match.start()
        breaks.append(_break_before(text, previous_end, begin))
        start.append(begin)
        previous_end = match.end()
        end.append(previous_end)
        total += _weigh(match)
        weight.append(total)
    return _Atoms(start, end, weight, breaks)


def _weigh(match: re.Match[str]) -> int:
    size = match.end() - match.start()
    kind = match.lastgroup
    if kind == "latin":
        return _LATIN[size]
    if kind == "digits":
        return _DIGITS[size]
    if kind == "letters":
        return _LETTERS[size]
    return _ONE


def _break_before(text: str, previous_end: int, begin: int) -> Break:
    """The strength of the gap text[previous_end:begin] between two atoms."""
    if previous_end == 0:
        return Break.WORD
    last = text[previous_end - 1]
    if begin == previous_end:
        if last in _WIDE_SENTENCE_ENDS and text[begin] not in _CLOSERS:
            return Break.SENTENCE
        if last in _WIDE_PAUSES:
            return Break.WORD
        return Break.HARD if text[begin].isascii() or not _joins(last, text[begin]) else Break.INSIDE
    gap = text[previous_end:begin]
    if gap != " ":
        if len(gap) > LONGEST_GAP:
            return Break.FORCED
        ends = sum(1 for character in gap if character in _LINE_ENDS)
        if ends - gap.count("\r\n"):
            if "\f" in gap or (text[begin] == "#" and _HEADING.match(text, begin)):
                return Break.SECTION
            return Break.PARAGRAPH if ends - gap.count("\r\n") > 1 else Break.LINE
    if last in _CLOSERS and previous_end > 1:
        last = text[previous_end - 2]
    if last in _SENTENCE_ENDS and not text[begin].islower():
        return Break.SENTENCE
    return Break.SENTENCE if last in _WIDE_SENTENCE_ENDS else Break.WORD


def _joins(left: str, right: str) -> bool:
    """Whether the two characters belong to one grapheme (marks, joiners, variation and skin-tone selectors)."""
    return (
        left == "\u200d"
        or right in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= right <= "\U0001f3ff"
        or unicodedata.category(right).startswith("M")
    )


def _cut(atoms: _Atoms, first: int, target: int, maximum: int) -> int:
    """The index after the last atom of the passage that begins at atom `first`."""
    count = len(atoms.start)
    base = atoms.weight[first]
    reach = max(first + 1, bisect_right(atoms.weight, base + maximum, first, count + 1) - 1)
    forced = atoms.breaks.find(Break.FORCED, first + 1, reach + 1)
    if forced != -1:
        reach = forced
    if reach in (count, forced):
        return reach
    remaining = atoms.weight[count] - base
    # The last stretch is halved, so that a text a little over the maximum does not leave a crumb.
    aim = min(target, remaining // 2) if remaining <= 2 * target else target
    for strength, share in _REACH.items():
        near = bisect_left(atoms.weight, base + int(aim * share), first + 1, reach)
        middle = bisect_right(atoms.weight, base + aim, near, reach + 1) - 1
        before = atoms.breaks.rfind(strength, near, middle + 1)
        after = atoms.breaks.find(strength, middle + 1, reach + 1)
        if before != -1 and after != -1:
            left, right = base + aim - atoms.weight[before], atoms.weight[after] - base - aim
            return before if left <= right else after
        if before != -1 or after != -1:
            return max(before, after)
    return reach
