"""Dates as answers write them: with the month in English words, or in digits."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator

from thresher.train.metrics.words import plain

Date = tuple[int | None, int | None, int | None]
"""Year (negative before Christ), month, day; None for what was not said."""

_LEAP_YEAR = 2000
_NAMES = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
_NAMES |= {name[:3]: number for name, number in _NAMES.items()} | {"sept": 9}
_MONTH = r"(?P<month>" + "|".join(sorted(_NAMES, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{3,4})(?!\d)"
_FORMS = [
    re.compile(form)
    for form in (
        rf"\b{_DAY}(?: of)?[ -]{_MONTH},?[ -]{_YEAR}",
        rf"\b{_MONTH} {_DAY}(?:,\s*|\s+){_YEAR}",
        rf"\b{_YEAR},? {_MONTH} {_DAY}(?!\d)",
        r"\b(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})(?!\d)",
        r"\b(?P<one>\d{1,2})(?P<sign>[-/.])(?P<two>\d{1,2})(?P=sign)(?P<year>\d{4})(?!\d)",
        rf"\b{_MONTH},?(?: of)? (?P<year>\d{{4}})(?!\d)",
        rf"\b{_DAY}(?: of)?[ -]{_MONTH}(?!\w)",
        rf"\b{_MONTH} {_DAY}(?![\d\w])",
        r"\b(?P<year>\d{1,4}) (?P<before>b\.?c\.?(?:e\.?)?)(?!\w)",
    )
]
_LEADING = re.compile(r"^(?:on |in |the |(?:mon|tues|wednes|thurs|fri|satur|sun)day,? )+")


def read_date(text: str) -> frozenset[Date]:
    """What the date that a text is can mean: two dates for "3/5/1998", none if it is more or other than a date.

    A year alone is a number, not a date.
    """
    text = _LEADING.sub("", plain(text).strip(" .,;!?"))
    for form in _FORMS:
        found = form.match(text)
        if found is not None and not text[found.end() :].strip(" ."):
            return _meanings(found)
    return frozenset()


def dates_in(text: str) -> Iterator[frozenset[Date]]:
    """Every date in a text, as `read_date` gives them; of forms that overlap the fuller one."""
    text = plain(text)
    taken: list[tuple[int, int]] = []
    for form in _FORMS:
        for found in form.finditer(text):
            if all(found.end() <= start or found.start() >= end for start, end in taken):
                taken.append(found.span())
                if meanings := _meanings(found):
                    yield meanings


def same_dates(left: str, right: str) -> bool | None:
    """Whether two texts are the same date, each as exact as the other; None if not both of them are dates."""
    one, other = read_date(left), read_date(right)
    return bool(one & other) if one and other else None


def _meanings(found: re.Match[str]) -> frozenset[Date]:
    parts = found.groupdict()
    if parts.get("before"):
        return frozenset({(-int(parts["year"]), None, None)})
    year = int(parts["year"]) if parts.get("year") else None
    if "one" in parts:
        one, two = int(parts["one"]), int(parts["two"])
        # With dots the day goes first everywhere; with strokes that depends on who writes.
        orders = [(two, one)] if parts["sign"] == "." else [(two, one), (one, two)]
        return frozenset((year, month, day) for month, day in orders if _exists(year, month, day))
    word = parts["month"]
    month = int(word) if word.isdecimal() else _NAMES[word]
    day = int(parts["day"]) if parts.get("day") else None
    return frozenset({(year, month, day)} if _exists(year, month, day) else ())


def _exists(year: int | None, month: int, day: int | None) -> bool:
    if not 1 <= month <= 12:
        return False
    if day is None:
        return True
    return 1 <= day <= calendar.monthrange(_LEAP_YEAR if year is None else max(1, year), month)[1]
