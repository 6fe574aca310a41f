"""Which language a short text is in, as far as its script and its function words tell."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

ENGLISH = "English"
UNKNOWN = "unknown"

# The commonest function words of each language that others do not share.
_FUNCTION_WORDS = {
    ENGLISH: "the of and is are was were be been has have had do does did what which who whom whose when where why how "
    "to in for with from that this there by at on or an it its i my me you your we can could would should not",
    "German": "der das und ist wer wie wo wann welche welcher welches von mit für den dem ein eine nicht zu auf ich",
    "French": "le la les des est était qui que quel quelle où quand dans et une avec sur au aux je pas ce",
    "Spanish": "el los las fue qué quién cuál dónde cuándo cómo del y una por en se está mi",
    "Italian": "il lo gli è chi che quale dove della di e una per con nel sono alla quando",
    "Portuguese": "os é foi quem qual onde como da dos uma em não pelo ao você são",
    "Dutch": "het een wie wat welke waar wanneer hoe van en de voor met niet op zijn ik",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}
_SCRIPTS = {
    "CJK": "Chinese or Japanese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "CYRILLIC": "Cyrillic script",
    "ARABIC": "Arabic script",
    "HEBREW": "Hebrew",
    "GREEK": "Greek",
    "DEVANAGARI": "Devanagari script",
    "THAI": "Thai",
}
_WORD = re.compile(r"\w+")

FUNCTION_WORDS = frozenset[str]().union(*_LANGUAGES.values())
"""Words that say how a text is put together, not what it is about."""


def language_of(text: str) -> str:
    """The language of a short text by its function words or its script; `unknown` where they do not tell.

    Good enough to say that a set is not in English; no more is claimed.
    """
    scripts = Counter(unicodedata.name(c, "").split(" ", 1)[0].split("-")[0] for c in text if c.isalpha())
    if not scripts:
        return UNKNOWN
    script, count = scripts.most_common(1)[0]
    if script in ("CJK", "HIRAGANA", "KATAKANA") and (scripts["HIRAGANA"] or scripts["KATAKANA"]):
        return _SCRIPTS["HIRAGANA"]
    if script != "LATIN" and count > scripts.total() / 2:
        return _SCRIPTS.get(script, f"{script.capitalize()} script")
    words = set(_WORD.findall(text.casefold()))
    hits = Counter({language: len(words & own) for language, own in _LANGUAGES.items()})
    (best, most), (_, second) = hits.most_common(2)
    if most == 0:
        return ENGLISH if text.isascii() and len(words) < 4 else UNKNOWN
    return best if most > second else (ENGLISH if hits[ENGLISH] == most else UNKNOWN)
