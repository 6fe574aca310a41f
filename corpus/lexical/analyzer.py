"""What a BM25 term is.

Two kinds of text are told apart. Scripts written with spaces are split at everything that is not a letter or digit,
lower-cased, stripped of accents and stemmed (English Snowball). Scripts written without spaces (Chinese, Japanese, Thai
and their like) and Korean become overlapping character bigrams plus single characters, because a word tokenizer sees a
whole clause of them as one term that no query matches.

Both a text and a query are normalised first, so that what looks the same is the same: width and composition (NFKC),
accents and vowel points whether composed or not, and characters that are not seen at all.
"""

from __future__ import annotations

import re
import unicodedata

ANALYZER_VERSION = "2"
"""Part of the manifest. Raise it with any change here: the lexical index is then rebuilt on the next open."""

STEMMED = "text"
TITLE = "title"
BIGRAMS = "cjk"

_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Kana, with the prolonged sound mark
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_RUNS = re.compile(f"[{_UNSPACED}]+")

# Soft hyphens, joiners, zero-width spaces, variation selectors: a tokenizer would split a word at each of them.
_UNSEEN = "\u00ad\u034f\u061c\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef"
# Accents of alphabets, Hebrew points, Arabic vowel signs and the tatweel: written or left out at will. Marks that spell
# (Indic vowels, the Japanese voiced sound) stay, and so do those of phonetic notation, which is no text.
_MARKS = "\u0300-\u0328\u0330\u0331\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670"
_DROPPED = re.compile(f"[{_UNSEEN}{_MARKS}]")
# A line break inside a clause that has no spaces is layout, and the dot in a foreign name is written or not.
_JOINED = re.compile(f"(?<=[{_UNSPACED}])(?:[\u00b7\u2027\u30a0\u30fb]|[ \t]*\r?\n[ \t]*)(?=[{_UNSPACED}])")


def split_scripts(text: str) -> tuple[str, list[str]]:
    """(`text` normalised and without unspaced scripts, the runs of unspaced scripts)."""
    if text.isascii():
        return text, []
    normal = unicodedata.normalize("NFC", _DROPPED.sub("", unicodedata.normalize("NFKD", text)))
    normal = _JOINED.sub("", normal)
    return _RUNS.sub(" ", normal), _RUNS.findall(normal)


def indexed_grams(runs: list[str]) -> list[str]:
    """The terms of unspaced text in an index: every character and every pair of neighbours."""
    return [gram for run in runs for gram in (*run, *_pairs(run))]


def queried_grams(runs: list[str]) -> list[str]:
    """The terms of unspaced text in a query: pairs, or the character itself where a run has only one."""
    return [gram for run in runs for gram in (_pairs(run) if len(run) > 1 else run)]


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
