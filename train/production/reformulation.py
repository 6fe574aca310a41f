"""Whether a question is an earlier one asked again in other words: the first search was not enough then."""

from __future__ import annotations

from thresher.train.tasks.alike import words_of
from thresher.train.tasks.languages import FUNCTION_WORDS

WITHIN_S = 600.0
"""How soon after the end of the first search the second must be asked."""

SHARED = 0.4
"""Share of all content words of both questions that they must share (Jaccard)."""

CONTAINED = 0.75
"""Or the share of the shorter one's words that the longer one has, if they share two and more: it was narrowed, or
widened."""


def reformulates(earlier: str, later: str) -> bool:
    """Whether `later` asks for nearly the same as `earlier`, in other words.

    Content words count, blind to case, accents, punctuation and order. The same words again are no reformulation: that
    is a page loaded anew, or a client that tries again. The caller sees to it that both are of one session or key, and
    no more than `WITHIN_S` apart.
    """
    one, other = _content(earlier), _content(later)
    if not one or not other or one == other:
        return False
    shared = len(one & other)
    smaller = min(len(one), len(other))
    return shared / len(one | other) >= SHARED or (shared >= 2 and shared / smaller >= CONTAINED)


def _content(question: str) -> frozenset[str]:
    return words_of(question) - FUNCTION_WORDS
