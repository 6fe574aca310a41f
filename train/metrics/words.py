"""Texts as plain words to compare answers by: what writing does not mean is folded away, what it means is kept.

Wider than SQuAD's normalisation, which knows ASCII only, and stricter where that loses meaning: "1.5" is not "15", and
"C++" is not "C".
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

ARTICLES = frozenset({"a", "an", "the"})

_NO_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ŋ": "n"}
)
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−﹣－"), "-")
_APOSTROPHES = dict.fromkeys(map(ord, "'’‘ʼʹ`´"))
_SUPERSCRIPTS = {ord(sign): f"^{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_SIGNS = {ord("&"): " and ", ord("%"): " percent "}

# Private characters stand for punctuation that means something where it stands, and for what articles are told by.
_KEPT = {".": "\ue000", ":": "\ue001", ",": "\ue002", "+": "\ue003", "#": "\ue004"}
_INITIALS = "\ue005"
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[.:,](?=\d)")
_AFTER_LETTERS = re.compile(r"(?<=\w)[+#]+(?!\w)")
_DOTTED = re.compile(r"(?<!\w)(?:[^\W\d_]\.){2,}(?:[^\W\d_](?!\w))?")
_PERCENT = re.compile(r"\bper cent\b")
_MARKS = re.compile("[\u0300-\u036f]")

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that write no blanks between words: Thai, Lao, Burmese, Khmer, Chinese and Japanese."""


class _Spaces(dict[int, str]):
    """What stands for a character once all else is done: itself for letters, marks and digits, else a blank."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character in _KEPT.values() or character == _INITIALS or unicodedata.category(character)[0] in "LMN"
        self[code] = character if kept else " "
        return self[code]


_SPACES = _Spaces()


def plain(text: str) -> str:
    """NFKC, lower case, ASCII digits, dashes and blanks; Latin and Greek letters without diacritics.

    Marks of other scripts stay: there they make other letters.
    """
    if not text.isascii():
        text = "".join(map(_spaced_fraction, text)) if _has_fraction(text) else text
        text = unicodedata.normalize("NFKC", text.translate(_SUPERSCRIPTS)).translate(_DASHES)
        text = "".join(map(_ascii_digit, text))
    text = text.casefold()
    if not text.isascii():
        text = _bare(text.translate(_NO_DECOMPOSITION))
    return " ".join(text.split())


@lru_cache(maxsize=2_048)
def words(text: str) -> tuple[str, ...]:
    """Words to compare, without articles; punctuation parts them, but for what stands between digits or initials.

    "U.S." is one word, "1,200" is "1200", "&" is "and", "%" is "percent". A text of articles only keeps them, so that
    it is not empty; one of punctuation only is.
    """
    text = plain(text).translate(_APOSTROPHES).translate(_SIGNS)
    text = _PERCENT.sub("percent", text)
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    text = _BETWEEN_DIGITS.sub(lambda found: _KEPT[found[0]], text)
    text = _AFTER_LETTERS.sub(lambda found: "".join(_KEPT[sign] for sign in found[0]), text)
    text = _DOTTED.sub(lambda found: f"{_INITIALS}{found[0].replace('.', '')} ", text)
    found = text.translate(_SPACES).split()
    kept = [word for word in found if word not in ARTICLES] or found
    return tuple(word.replace(_INITIALS, "") for word in kept if word != _INITIALS)


def unspaced(text: str) -> bool:
    """Whether a text is written, at least in part, in a script without blanks between words."""
    return _UNSPACED.search(text) is not None


def _bare(text: str) -> str:
    """Latin and Greek letters without the marks above and below them."""
    if not any(character >= "\u00c0" for character in text):
        return text
    made: list[str] = []
    strip = False
    for character in unicodedata.normalize("NFD", text):
        if _MARKS.match(character):
            if not strip:
                made.append(character)
            continue
        strip = _latin_or_greek(character)
        made.append(character)
    return unicodedata.normalize("NFC", "".join(made))


@lru_cache(maxsize=4_096)
def _latin_or_greek(character: str) -> bool:
    return unicodedata.name(character, "").startswith(("LATIN", "GREEK"))


def _ascii_digit(character: str) -> str:
    value = -1 if character.isascii() else unicodedata.decimal(character, -1)
    return str(value) if value >= 0 else character


def _has_fraction(text: str) -> bool:
    return any(unicodedata.category(character) == "No" for character in text)


def _spaced_fraction(character: str) -> str:
    """ "2½" would be normalised to "21⁄2"."""
    fraction = unicodedata.category(character) == "No" and "FRACTION" in unicodedata.name(character, "")
    return f" {character}" if fraction else character
