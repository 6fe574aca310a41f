"""Whether an answer is right: by the measures of the literature, and by what it says.

`exact_match`, `token_f1` and `answer_in_text` are those after SQuAD (Rajpurkar et al., 2016), best over aliases;
reports use them, so that figures compare. `answers_match`, `answer_score` and `answer_found` know numbers, dates and
Unicode besides; rewards use them: a right answer that is paid as a wrong one teaches to write it otherwise.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

from thresher.train.metrics.dates import dates_in, read_date, same_dates
from thresher.train.metrics.numbers import same_numbers, spellings
from thresher.train.metrics.words import plain, unspaced, words

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


def answers_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether the prediction says the same as one of the answers.

    Numbers and dates are compared by what they say, however they are written: "1,200" is "twelve hundred" and not
    "12.00", "3 May 1998" is "1998-05-03" and not "1998". A "yes" or "no" may go on behind a comma or a stop. All else
    is compared word by word, with case, diacritics, punctuation and articles left out. Nothing is equal to an empty
    text. It is symmetric: with one answer, both can change places.
    """
    return any(_same(prediction, answer) for answer in answers)


def answer_score(prediction: str, answers: Iterable[str]) -> float:
    """1 if the prediction says the same as one of the answers, else the best F1 of their words; in [0, 1].

    Words are those that `answers_match` compares. A number, a date or a "yes" that is wrong shares no words with the
    right one: there is no half of it.
    """
    return max((_score(prediction, answer) for answer in answers), default=0.0)


def answer_found(answers: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether one answer stands in one of the texts, as whole words, or as the same date or number written otherwise.

    "Yes", "no" and what has no words are never found: they would stand in every text, or in none.
    """
    wanted = [answer for answer in answers if findable([answer])]
    return bool(wanted) and any(_stands_in(answer, text) for text in texts for answer in wanted)


def findable(answers: Iterable[str]) -> bool:
    """Whether an answer can be looked for in a text: there is one with words in it that is not "yes" or "no"."""
    return any((own := words(answer)) and own not in _VERDICTS for answer in answers)


_VERDICTS = (("yes",), ("no",))
_VERDICT = re.compile(r"(yes|no)(?=\W*$|\s*[,.;:!-])")


def _same(left: str, right: str) -> bool:
    one, other = words(left), words(right)
    if not one or not other:
        return False
    alike = _alike(left, right)
    if alike is not None:
        return alike
    if one == other:
        return True
    # "Day-Cruises" and "Daycruises"; digits that are put together make another number.
    joined = "".join(one)
    return joined == "".join(other) and not any(character.isdigit() for character in joined)


def _alike(left: str, right: str) -> bool | None:
    """Whether two texts of one kind (date, number, verdict) say the same; None if they are not of one kind."""
    for same in (same_dates, same_numbers, _same_verdicts):
        alike = same(left, right)
        if alike is not None:
            return alike
    return None


def _same_verdicts(left: str, right: str) -> bool | None:
    """Only where one of the two is no more than "yes" or "no"."""
    if words(left) not in _VERDICTS and words(right) not in _VERDICTS:
        return None
    one, other = _VERDICT.match(plain(left)), _VERDICT.match(plain(right))
    return one[1] == other[1] if one and other else None


def _score(prediction: str, answer: str) -> float:
    if _same(prediction, answer):
        return 1.0
    one, other = words(prediction), words(answer)
    return 0.0 if not one or not other or _alike(prediction, answer) is not None else _f1(one, other)


def _stands_in(answer: str, text: str) -> bool:
    own, there = words(answer), words(text)
    if unspaced(answer):
        return "".join(own) in "".join(there)
    haystack = f" {' '.join(there)} "
    if any(f" {' '.join(way)} " in haystack for way in (own, *spellings(answer))):
        return True
    date = read_date(answer)
    return bool(date) and any(date & found for found in dates_in(text))
