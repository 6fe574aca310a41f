"""What a BM25 term is.

Two kinds of text are told apart. Scripts written with spaces are split at everything that is not a letter or digit,
lower-cased, stripped of accents and stemmed (English Snowball). Scripts written without spaces (Chinese, Japanese, Thai
and their like) and Korean become overlapping character bigrams plus single characters, because a word tokenizer sees a
whole clause of them as one term that no query matches.
"""

from __future__ import annotations

import re
import unicodedata

ANALYZER_VERSION = "1"
"""Part of the manifest. Raise it with any change here: the lexical index is then rebuilt on the next open."""

STEMMED = "text"
TITLE = "title"
BIGRAMS = "cjk"

_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "]+"
)


def split_scripts(text: str) -> tuple[str, list[str]]:
    """(`text` in NFKC without unspaced scripts, the runs of unspaced scripts)."""
    if text.isascii():
        return text, []
    normal = unicodedata.normalize("NFKC", text)
    return _UNSPACED.sub(" ", normal), _UNSPACED.findall(normal)


def indexed_grams(runs: list[str]) -> list[str]:
    """The terms of unspaced text in an index: every character and every pair of neighbours."""
    return [gram for run in runs for gram in (*run, *_pairs(run))]


def queried_grams(runs: list[str]) -> list[str]:
    """The terms of unspaced text in a query: pairs, or the character itself where a run has only one."""
    return [gram for run in runs for gram in (_pairs(run) if len(run) > 1 else run)]


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
