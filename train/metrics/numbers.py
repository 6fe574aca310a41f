"""Numbers as answers write them: digits with any separators, English words, scales, units, ordinals and ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from thresher.train.metrics.words import plain

_UNITS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "bn": 10**9, "trillion": 10**12}
_ORDINALS = {
    "first": "one",
    "second": "two",
    "third": "three",
    "fifth": "five",
    "eighth": "eight",
    "ninth": "nine",
    "twelfth": "twelve",
}
_LEADING_WORDS = re.compile(r"^(?:(?:in|the|year)\s+)+(?=\S)")
_APPROXIMATELY = re.compile(r"^(?:about|around|approximately|approx\.?|roughly|circa|ca?\.|~|≈|nearly|almost)\s*")
_ERA = re.compile(r"^(?:a\.?d\.?|c\.?e\.?)\s+(?=\d)|(?<=\d)\s+(?:a\.?d\.?|c\.?e\.?)$")
_CURRENCIES = {"us$": "dollar", "$": "dollar", "€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee"}
_PREFIX = re.compile(r"^(us\$|[$€£¥₹])\s*")
_RANGE = re.compile(r"^(?:from |between )?(\S.*?)(?:\s*-\s*| to | and | until | through )(\S.*)$")
_ORDINAL_DIGITS = re.compile(r"^(\d+)(?:st|nd|rd|th)$")
_LEADING = re.compile(r"^([+-]?)\s*((?:\d|\.\d)[\d.,' ]*\d|\d)(?![\d.,])")

_UNIT_NAMES = (
    "percent % pct per_cent",
    "km kilometre kilometer kilometres kilometers",
    "m metre meter metres meters",
    "cm centimetre centimeter centimetres centimeters",
    "mm millimetre millimeter millimetres millimeters",
    "mi mile miles",
    "ft foot feet",
    "inch inches",
    "yard yards yd",
    "kg kilogram kilograms kilo kilos",
    "g gram grams",
    "lb lbs pound pounds",
    "tonne tonnes ton tons",
    "km2 square_kilometres square_kilometers sq_km km^2",
    "mi2 square_miles square_mile sq_mi",
    "hectare hectares ha",
    "acre acres",
    "litre liter litres liters l",
    "year years yr yrs years_old year_old years_of_age",
    "month months",
    "week weeks",
    "day days",
    "hour hours hr hrs",
    "minute minutes min mins",
    "second seconds sec secs",
    "degree degrees °",
    "celsius °c degrees_celsius c",
    "fahrenheit °f degrees_fahrenheit f",
    "kmh km/h kph kilometres_per_hour kilometers_per_hour",
    "mph miles_per_hour",
    "watt watts w",
    "kw kilowatt kilowatts",
    "mw megawatt megawatts",
    "dollar dollars usd us_dollars",
    "euro euros eur",
    "gbp pound pounds pounds_sterling",
    "yen jpy",
    "rupee rupees inr",
    "people persons person inhabitants residents",
    "time times",
    "goal goals",
    "point points",
    "game games",
    "episode episodes",
    "season seasons",
    "member members",
    "student students",
    "seat seats",
    "copy copies",
)
"""Names of one unit a line, the first standing for it; blanks within a name are written as underscores."""


def _known_units() -> dict[str, frozenset[str]]:
    """Each name with the units that it can mean."""
    known: dict[str, frozenset[str]] = {}
    for names in _UNIT_NAMES:
        unit, *others = names.split()
        for name in (unit, *others):
            written = name.replace("_", " ")
            known[written] = known.get(written, frozenset()) | {unit}
    return known


_KNOWN_UNITS = _known_units()


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it was written.

    Attributes:
        values: what it can mean; more than one where separators are ambiguous ("1.200").
        units: what the unit can mean ("pounds": money or weight); empty for a bare number.
        ordinal: whether it says a place ("third"), not a number.
    """

    values: frozenset[Fraction]
    units: frozenset[str] = frozenset()
    ordinal: bool = False

    def same(self, other: Quantity) -> bool:
        """Whether both can say the same. A bare number agrees with any unit: the question says what is counted."""
        agreed = not self.units or not other.units or self.units & other.units
        return self.ordinal == other.ordinal and bool(agreed) and bool(self.values & other.values)


def read_quantity(text: str) -> Quantity | None:
    """The number that a text is, with a unit if one follows; None if it is more or other than that."""
    text = _APPROXIMATELY.sub("", _LEADING_WORDS.sub("", plain(text).rstrip(".,;!?")))
    text = _ERA.sub("", text)
    prefix = _PREFIX.match(text)
    units = frozenset({_CURRENCIES[prefix[1]]}) if prefix else frozenset[str]()
    text = text[prefix.end() :] if prefix else text
    if ordinal := _ORDINAL_DIGITS.match(text):
        return None if prefix else Quantity(frozenset({Fraction(int(ordinal[1]))}), ordinal=True)
    leading = _LEADING.match(text)
    if leading is None:
        return _in_words(text, units)
    values = _readings(leading[2])
    rest = text[leading.end() :].strip(" -")
    scale, rest = _scale(rest)
    following = _unit(rest)
    if not values or following is None or (following and units and not following & units):
        return None
    sign = -1 if leading[1] == "-" else 1
    return Quantity(frozenset(sign * scale * value for value in values), units or following)


def read_range(text: str) -> tuple[Quantity, Quantity] | None:
    """Both ends of a range of numbers ("1914–18", "from 5 to 10 km"); None if the text is none."""
    found = _RANGE.match(plain(text).rstrip(".,;!?"))
    if found is None:
        return None
    low, high = found[1], found[2]
    if re.fullmatch(r"\d{4}", low) and re.fullmatch(r"\d{2}", high):
        high = low[:2] + high
    first, last = read_quantity(low), read_quantity(high)
    if first is None or last is None or first.ordinal or last.ordinal:
        return None
    units = first.units or last.units
    return Quantity(first.values, units), Quantity(last.values, last.units or units)


def same_numbers(left: str, right: str) -> bool | None:
    """Whether two texts are the same number, or the same range; None if not both of them are one or the other."""
    for read in (read_range, _single):
        one, other = read(left), read(right)
        if one is not None and other is not None:
            return all(a.same(b) for a, b in zip(one, other, strict=True))
    return None


def spellings(text: str) -> list[tuple[str, ...]]:
    """Other ways, as words, to write the whole number, or the range, that a text is."""
    ways: list[tuple[str, ...]] = []
    if both := read_range(text):
        ends = [_whole(end) for end in both]
        if None not in ends:
            low, high = (str(end) for end in ends)
            ways += [(low, high), (low, "to", high), (low, "and", high)]
    elif (one := read_quantity(text)) is not None and not one.units and not one.ordinal:
        value = _whole(one)
        if value is not None and value > 10:  # smaller ones are words of every text: "one of them"
            ways += [(str(value),), *_small_words(value)]
    return ways


def _single(text: str) -> tuple[Quantity] | None:
    quantity = read_quantity(text)
    return None if quantity is None else (quantity,)


def _whole(quantity: Quantity) -> int | None:
    values = [int(value) for value in quantity.values if value.denominator == 1 and value >= 0]
    return values[0] if len(values) == 1 else None


def _small_words(value: int) -> list[tuple[str, ...]]:
    names = {number: word for word, number in (_UNITS | _TENS).items()}
    if value in names:
        return [(names[value],)]
    if 20 < value < 100:
        return [(names[value - value % 10], names[value % 10])]
    return []


def _readings(digits: str) -> frozenset[Fraction]:
    """What digits with separators can mean; nothing if they are no number (a version, a time, "007")."""
    digits = digits.strip()
    if re.fullmatch(r"0\d.*", digits):
        return frozenset()
    if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", digits):  # 1.200: the decimal point, or the thousands of many languages
        return frozenset({Fraction(digits), Fraction(digits.replace(".", ""))})
    if re.fullmatch(r"\d+|\d*\.\d+", digits):
        return frozenset({Fraction(digits)})
    for grouping, decimal in ((",", "."), (".", ","), (" ", "."), (" ", ","), ("'", "."), ("'", ",")):
        group, point = re.escape(grouping), re.escape(decimal)
        if re.fullmatch(rf"\d{{1,3}}(?:{group}\d{{3}})+(?:{point}\d+)?", digits):
            return frozenset({Fraction(digits.replace(grouping, "").replace(decimal, "."))})
    if re.fullmatch(r"\d{1,2}(?:,\d{2})+,\d{3}", digits):  # 12,34,567
        return frozenset({Fraction(digits.replace(",", ""))})
    if re.fullmatch(r"\d+,\d+", digits):
        return frozenset({Fraction(digits.replace(",", "."))})
    return frozenset()


def _scale(rest: str) -> tuple[int, str]:
    factor = 1
    while rest:
        word, _, behind = rest.partition(" ")
        if word == "hundred":
            factor *= 100
        elif word in _SCALES:
            factor *= _SCALES[word]
        else:
            break
        rest = behind.strip()
    return factor, rest


def _unit(rest: str) -> frozenset[str] | None:
    """What the words behind a number can mean as a unit; empty for none, None for words that are none."""
    return _KNOWN_UNITS.get(rest) if rest else frozenset()


def _in_words(text: str, units: frozenset[str]) -> Quantity | None:
    tokens = [word for word in re.split(r"[\s-]+", text) if word]
    sign = 1
    if tokens and tokens[0] in ("minus", "negative"):
        sign, tokens = -1, tokens[1:]
    if tokens and tokens[0] == "a" and len(tokens) > 1 and (tokens[1] == "hundred" or tokens[1] in _SCALES):
        tokens = tokens[1:]
    for length in range(len(tokens), 0, -1):
        value, ordinal = _value(tokens[:length])
        if value is None:
            continue
        following = _unit(" ".join(tokens[length:]))
        if following is None or (ordinal and following):
            return None
        return Quantity(frozenset({Fraction(sign * value)}), units or following, ordinal)
    return None


def _value(tokens: Sequence[str]) -> tuple[int | None, bool]:
    """The number that words say, and whether as an ordinal; None if they say none."""
    words = list(tokens)
    ordinal = False
    if words:
        cardinal = _cardinal(words[-1])
        if cardinal is not None:
            words[-1], ordinal = cardinal, True
    total = current = 0
    smallest = None
    said = False
    for place, word in enumerate(words):
        if word == "and" and said and place + 1 < len(words):
            continue
        if word in _UNITS and (current % 100 == 0 or (current % 100 in _TENS.values() and 0 < _UNITS[word] < 10)):
            current += _UNITS[word]
        elif word in _TENS and current % 100 == 0:
            current += _TENS[word]
        elif word == "hundred" and 0 <= current < 100:
            current = 100 * (current or 1)
        elif word in _SCALES and (smallest is None or _SCALES[word] < smallest) and (current or not said):
            smallest = _SCALES[word]
            total, current = total + (current or 1) * smallest, 0
        else:
            return None, False
        said = True
    return (total + current if said else None), ordinal


def _cardinal(word: str) -> str | None:
    """The cardinal of an ordinal in words; None if it is none."""
    if word in _ORDINALS:
        return _ORDINALS[word]
    if word.endswith("ieth") and word[:-4] + "y" in _TENS:
        return word[:-4] + "y"
    known = word[:-2] in _UNITS or word[:-2] == "hundred" or word[:-2] in _SCALES
    return word[:-2] if word.endswith("th") and known else None
