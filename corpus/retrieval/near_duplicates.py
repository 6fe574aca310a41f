"""Near-duplicates among the candidates of one search: the same passage in two documents, boilerplate, quoted replies.

A passage is a near-duplicate of a better ranked one when nearly all of it stands there: its containment (the share
of its word shingles that the other one has too) reaches a threshold, and so do all its numbers. Containment looks one
way only, so what is left out has been read in the passage that was kept, while a reply that quotes a message and adds
to it is not taken for the message. Numbers must all be there because forms and reports differ in nothing else.

Source: Broder, "On the resemblance and containment of documents" (1997); exact here, since candidates are few.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

NEAR_DUPLICATE = 0.9

_SHINGLE = 4
# A character of a script that is written without spaces is a word of its own.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What of a text is compared: its shingles, and its words that hold a digit."""

    shingles: frozenset[tuple[str, ...]]
    numbers: frozenset[str]


def fingerprint(text: str) -> Fingerprint:
    """The shingles of a text, blind to case, punctuation, white space and the form of characters."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    if len(words) < _SHINGLE:
        # Too short for a shingle: only its like is equal to it. Without words, punctuation is all there is.
        shingles = frozenset({tuple(words) or (text.strip(),)})
    else:
        shingles = frozenset(zip(*(words[i:] for i in range(_SHINGLE)), strict=False))
    return Fingerprint(shingles, frozenset(word for word in words if not word.isalpha() and _has_digit(word)))


def collapse(candidates: Iterable[tuple[int, str]], threshold: float) -> dict[int, list[int]]:
    """Group candidates, given best first as (id, text), under the best-ranked one that holds them.

    Returns:
        For each id that is kept, in order, the ids that collapsed into it. Every id given is in it once.
    """
    kept: dict[int, list[int]] = {}
    prints: list[tuple[int, Fingerprint]] = []
    holders: dict[tuple[str, ...], list[int]] = {}
    for identifier, text in candidates:
        own = fingerprint(text)
        shared = Counter(place for shingle in own.shingles for place in holders.get(shingle, ()))
        needed = threshold * len(own.shingles)
        # The first in the ranking that holds enough of it: the one a reader meets first.
        for place in sorted(place for place, count in shared.items() if count >= needed):
            keeper, whole = prints[place]
            if own.numbers <= whole.numbers:
                kept[keeper].append(identifier)
                break
        else:
            kept[identifier] = []
            for shingle in own.shingles:
                holders.setdefault(shingle, []).append(len(prints))
            prints.append((identifier, own))
    return kept


def _has_digit(word: str) -> bool:
    return any(character.isdigit() for character in word)
