"""Patterns to grep for: what an agent writes, and what is hard for a trigram index."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence

LITERAL_KINDS = ("word", "phrase", "common", "everywhere", "absent", "false friends", "alternatives")
"""Kinds of patterns with a literal of at least three characters."""


def grep_patterns(texts: Sequence[str], count: int, seed: int) -> Mapping[str, list[str]]:
    """`count` patterns of each kind, from passages of the collection.

    word: a word of a passage. phrase: three words in a row. common: one of the 50 commonest words. everywhere: a short
    string most passages hold. absent: a word that no passage holds. false friends: two common words run together, whose
    trigrams are everywhere and which itself is nowhere. alternatives: one of two words, then something. scan: no
    literal. scan, common: no literal, in every other passage.
    """
    rng = random.Random(seed)
    words: list[list[str]] = [re.findall(r"[A-Za-z]{3,}", text) for text in texts]
    common = [word for word, _ in Counter(word.lower() for own in words for word in own).most_common(50)]

    def long_word() -> str:
        return rng.choice([word for word in rng.choice(words) if len(word) >= 5] or ["passage"])

    def phrase() -> str:
        own = rng.choice(texts).split()
        at = rng.randrange(max(1, len(own) - 3))
        escaped: str = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(own[at : at + 3]))
        return escaped

    scans = [r"\d\d[^\w\s]\d\d[^\w\s]\d\d", r"[A-Z]{9}", r"\b[xyz]\w\d\b", r"[qQ][^u\W]\w[^\w\s]"]
    return {
        "word": [long_word() for _ in range(count)],
        "phrase": [phrase() for _ in range(count)],
        "common": [rng.choice(common) for _ in range(count)],
        "everywhere": [rng.choice(["the", "ing", "tion", "and ", " of ", "ent"]) for _ in range(count)],
        "absent": [f"{long_word()}qz{i}" for i in range(count)],
        "false friends": ["".join(rng.sample(common, 2)) + rng.choice(common) for _ in range(count)],
        "alternatives": [f"({long_word()}|{long_word()})s? [a-z]+" for _ in range(count)],
        "scan": [scans[i % len(scans)] for i in range(min(count, 8))],
        "scan, common": [r"\d{4}", r"[A-Z]\w+ [A-Z]\w+ [A-Z]", r"\W\w\W"],
    }
