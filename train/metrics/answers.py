"""Answer matching after SQuAD (Rajpurkar et al., 2016): normalised exact match and token F1, best over aliases."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the prediction equals one of the answers after normalisation."""
    wanted = normalise(prediction)
    return any(wanted == normalise(answer) for answer in answers)


def token_f1(prediction: str, answers: Iterable[str]) -> float:
    """Best F1 over the aliases, on bags of normalised tokens, in [0, 1]. No answers: 0."""
    return max((_f1(normalise(prediction).split(), normalise(answer).split()) for answer in answers), default=0.0)


def _f1(predicted: Sequence[str], wanted: Sequence[str]) -> float:
    if not predicted or not wanted:
        return float(predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted))


def answer_in_text(answers: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether one answer occurs, as whole normalised words, in one of the texts.

    Whole words, so that "art" is not found in "party". An answer of which normalisation leaves nothing ("The", "-")
    is never found. "yes" and "no" are looked for like any other words, so for yes/no questions this says little.
    """
    wanted = [f" {normal} " for answer in answers if (normal := normalise(answer))]
    if not wanted:
        return False
    return any(needle in haystack for text in texts for haystack in (f" {normalise(text)} ",) for needle in wanted)
