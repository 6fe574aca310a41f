"""Finds personal data and secrets in a text, by form: no model, no network, nothing to download.

What has a form is found: e-mail addresses, phone numbers, IBANs, cards, addresses of machines, keys and passwords, and
whatever an operator's own patterns match. What has none is not: names, streets, birthdays. Where a form is not sure,
it is taken for personal: a number too much is taken out rather than one too few.

Phone numbers are read by Google's libphonenumber (`phonenumberslite`: maintained, pure Python, its tables inside). An
IBAN's and a card's check digits are ten lines, and need no package.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from thresher.train.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Span:
    """What was found: characters `start` to `end` of the text, and what they are."""

    start: int
    end: int
    kind: str


Finder = Callable[[str], Iterator[Span]]

IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
    "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
    "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
    "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
    "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19,
    "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29,
    "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24,
    "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
    "YE": 30,
}  # fmt: skip
"""Characters of an IBAN by country. Source: SWIFT, IBAN Registry, release 99."""

_LOCAL = r"[^\s@<>()\[\]{},;:\"'|\\/=?&#]"
_EMAIL = re.compile(
    rf"(?:(?<!{_LOCAL}){_LOCAL}+|\"[^\"@\n]{{1,64}}\")(?:@|%40|\s?[\[({{]\s?at\s?[\])}}]\s?)"
    r"(?:[\w-]{1,63}(?:\.|\s?[\[({]\s?dot\s?[\])}]\s?)){1,8}[^\W\d_][\w-]{1,62}",
    re.IGNORECASE,
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \-]?[A-Za-z0-9]){11,30}")
_DIGITS = re.compile(r"(?<!\w)\d(?:[ \-.]?\d){12,}(?!\w)")
_GROUP = re.compile(r"\d+")
_NO_CARDS = "01789"
"""No card that people pay with begins with these."""
_IPV4 = re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\d|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]{3,45}")
_MAC = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![\w:-])")
_SSN = re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)(?!\[[a-z]+-\d+\]@)[^\s/@]+(?=@)")
"""Not a placeholder that stands in its place already: that would be found again without end."""
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{16,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|gh[opusr]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{16,}|dop_v1_[a-f0-9]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}"
    r"|lin_api_\w{20,}|whsec_\w{16,}|th_[0-9a-f]{12}_[0-9a-f]{8,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")"
)
_NAMED = re.compile(
    r"(?i)(?:\b|_)(?:(?:password|passwd|passwort|passphrase|pwd|client[ _-]?secret|secret|api[ _-]?key|access[ _-]?key"
    r"|access[ _-]?token|auth[ _-]?token|token)[\"']?\s*(?:[:=]|=>)\s*[\"']?|(?:password|passphrase) is [\"']?"
    r"|bearer\s+|basic\s+(?=[A-Za-z0-9+/]{12}))(?P<value>[^\s\"',;\[\]]{4,})"
)
_UUID = re.compile(r"(?<![\w-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+\-]{18,}[A-Za-z0-9]={0,2}")
_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_HEX = re.compile(r"[0-9a-fA-F]{24,}")

_SEPARATED = r"[ \u00a0.\-/()\u2010-\u2015]{0,3}"
_INTERNATIONAL = re.compile(rf"(?<![\w+])(?:\+|00(?=[1-9 ])){_SEPARATED}\(?\d(?:{_SEPARATED}\d){{6,16}}(?!\d)")
_TRUNK = re.compile(rf"(?<![\w.,+-])\(?0[1-9](?:{_SEPARATED}\d){{5,11}}(?![\w])")
_NANP = re.compile(
    r"(?<![\w.+-])(?:1[ .\-]?)?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .\-])[2-9]\d{2}[ .\-]?\d{4}(?!\w)"
    r"|(?<![\w.+-])[2-9]\d{2}[2-9]\d{6}(?![\w])"
)
_BARE = re.compile(r"(?<![\w.,+-])\d{11,15}(?![\w])")
_LABELLED = re.compile(
    r"(?i)\b(?:tel(?:efon|ephone)?|phone|mobile?|mobil|cell|handy|fax|whatsapp|call|ring|text)\b"
    rf"(?: ?(?:no|nr|number|us|me|at|on|is))*[ .:=#]{{0,3}}\(?(?P<value>\+?\d(?:{_SEPARATED}\d){{5,14}})"
)
_SIX_DIGITS = re.compile(r"(?:\d\D*?){6}")
_FOUR_DIGITS = re.compile(r"(?:\d\D*?){4}")
_AT = re.compile(r"@|%40|[\[({]\s?at\s?[\])}]", re.IGNORECASE)


class Detector:
    """Finds what must not be kept. Immutable, for all threads."""

    def __init__(self, *, patterns: Iterable[str] = (), phone_regions: Iterable[str] = ()) -> None:
        """`patterns` are an operator's own, in RE2's syntax, found as `custom`.

        `phone_regions` (`ES`, `SG`) are countries whose numbers are found as they are written there at home, too;
        without any, those that begin with +, 00 or 0, North American ones, and those that a word like "tel" introduces.

        Raises:
            SettingsError: a pattern is no regular expression, or matches what is empty; a region is none.
        """
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._regions = tuple(_region(region) for region in phone_regions)
        self._finders: tuple[Finder, ...] = (
            self._custom,
            _private_keys,
            _emails,
            lambda text: _whole(_PREFIXED, "secret", text),
            _named,
            _ibans,
            _cards,
            _addresses,
            self._phones,
        )

    def find(self, text: str, *, exempt: Collection[str] = ()) -> list[Span]:
        """All that was found, in order, without overlaps.

        `exempt` are tokens that look random and are ids of the engine's own.
        """
        found: list[Span] = []
        for finder in self._finders:
            found.extend(finder(text))
        found.extend(_random(text, exempt))
        return _apart(found)

    def _custom(self, text: str) -> Iterator[Span]:
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                if match.end() > match.start():
                    yield Span(match.start(), match.end(), "custom")

    def _phones(self, text: str) -> Iterator[Span]:
        if not _SIX_DIGITS.search(text):
            return
        for match in _LABELLED.finditer(text):
            yield Span(match.start("value"), match.end("value"), "phone")
        for match in _INTERNATIONAL.finditer(text):
            yield Span(match.start(), match.start() + _number_length(match[0]), "phone")
        for match in _TRUNK.finditer(text):
            if _is_national(match[0]):
                yield Span(match.start(), match.end(), "phone")
        yield from _whole(_NANP, "phone", text)
        for match in _BARE.finditer(text):
            if _valid("+" + match[0]):
                yield Span(match.start(), match.end(), "phone")
        for region in self._regions:
            import phonenumbers

            for number in phonenumbers.PhoneNumberMatcher(text, region):
                yield Span(number.start, number.end, "phone")


def tokens_in(text: str) -> list[str]:
    """The parts of a text that may look random, as `Detector.find` takes them for its `exempt`."""
    return _TOKEN.findall(text)


def _apart(found: Sequence[Span]) -> list[Span]:
    """Spans that overlap become one, of the kind of the first that was found: finders stand in order of certainty."""
    order = {id(span): place for place, span in enumerate(found)}
    merged: list[tuple[Span, int]] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        place = order[id(span)]
        if merged and span.start < merged[-1][0].end:
            last, best = merged[-1]
            kind = last.kind if best <= place else span.kind
            merged[-1] = Span(last.start, max(last.end, span.end), kind), min(best, place)
        else:
            merged.append((span, place))
    return [span for span, _ in merged]


def _whole(pattern: re.Pattern[str], kind: str, text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        yield Span(match.start(), match.end(), kind)


def _private_keys(text: str) -> Iterator[Span]:
    if "PRIVATE KEY" in text:
        yield from _whole(_PRIVATE_KEY, "secret", text)


def _emails(text: str) -> Iterator[Span]:
    """Addresses, and names with passwords before a host, which look like them."""
    if _AT.search(text):
        yield from _whole(_EMAIL, "email", text)
        yield from _whole(_USERINFO, "secret", text)


def _named(text: str) -> Iterator[Span]:
    for match in _NAMED.finditer(text):
        yield Span(match.start("value"), match.end("value"), "secret")


def _ibans(text: str) -> Iterator[Span]:
    if not _FOUR_DIGITS.search(text):
        return
    for match in _IBAN.finditer(text):
        places = [place for place in range(match.start(), match.end()) if text[place].isalnum()]
        own = IBAN_LENGTHS.get(match[0][:2].upper())
        for length in (own,) if own else range(len(places), 14, -1):
            if length > len(places):
                continue
            end = places[length - 1] + 1
            boundary = end == len(text) or not text[end].isalnum()
            if boundary and _iban_checks("".join(text[place] for place in places[:length])):
                yield Span(match.start(), end, "iban")
                break


def _iban_checks(iban: str) -> bool:
    """ISO 7064, MOD 97-10."""
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


def _cards(text: str) -> Iterator[Span]:
    """Groups of digits side by side, of which other numbers may stand before and behind the card's own."""
    if not _SIX_DIGITS.search(text):
        return
    for match in _DIGITS.finditer(text):
        groups = [found.span() for found in _GROUP.finditer(text, match.start(), match.end())]
        sums, places = _luhn_sums([int(text[place]) for start, end in groups for place in range(start, end)]), [0]
        for start, end in groups:
            places.append(places[-1] + end - start)
        after = 0
        for first, (start, _) in enumerate(groups):
            if start < after or text[start] in _NO_CARDS:
                continue
            for last in range(first, len(groups)):
                length = places[last + 1] - places[first]
                if length > 19:
                    break
                if length >= 13 and _luhn(sums, places[first], places[last + 1]):
                    after = groups[last][1]
            if after > start:
                yield Span(start, after, "card")


def _luhn_sums(digits: Sequence[int]) -> tuple[list[int], list[int]]:
    """Running sums of the digits up to each place, those at even places doubled, and those at odd ones."""
    sums: tuple[list[int], list[int]] = ([0], [0])
    for place, digit in enumerate(digits):
        doubled = 2 * digit - 9 * (digit > 4)
        for parity in (0, 1):
            sums[parity].append(sums[parity][-1] + (doubled if place % 2 == parity else digit))
    return sums


def _luhn(sums: tuple[list[int], list[int]], first: int, end: int) -> bool:
    """ISO/IEC 7812-1, annex B, of the digits from `first` up to `end`: each second one from the right is doubled."""
    those = sums[end % 2]
    return (those[end] - those[first]) % 10 == 0


def _addresses(text: str) -> Iterator[Span]:
    if _FOUR_DIGITS.search(text):
        yield from _whole(_IPV4, "ip", text)
        yield from _whole(_SSN, "id", text)
    if max(text.count(":"), text.count("-")) >= 5:
        yield from _whole(_MAC, "mac", text)
    if text.count(":") < 2:
        return
    for match in _IPV6.finditer(text):
        shown = match[0].rstrip(".")
        for end in (len(shown), len(shown) - 1):  # a colon may follow as punctuation
            try:
                ipaddress.IPv6Address(shown[:end])
            except ValueError:
                continue
            if any(character.isdigit() for character in shown[:end]):  # `a::b` is a name in a program
                yield Span(match.start(), match.start() + end, "ip")
            break


def _random(text: str, exempt: Collection[str]) -> Iterator[Span]:
    """Keys of no known form: long, of letters and digits mixed, as random as no word is."""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token not in exempt and not any(part in exempt for part in re.split(r"[+=]", token)) and _is_random(token):
            yield Span(match.start(), match.end(), "secret")


def _is_random(token: str) -> bool:
    if _UUID.fullmatch(token):
        return True
    if _HEX.search(token) and any(c.isdigit() for c in token) and any(c.isalpha() for c in token):
        return True
    groups = [sum(map(test, token)) for test in (str.isdigit, str.isupper, str.islower)]
    if min(groups) >= 3 and _entropy(token) >= 3.5:
        return True
    return any(
        sum(map(str.isdigit, run)) >= 3 and sum(map(str.isalpha, run)) >= 3 and _entropy(run) >= 3.0
        for run in _RUN.findall(token)
    )


def _entropy(text: str) -> float:
    """Shannon's, in bits a character."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _number_length(shown: str) -> int:
    """How much of it is one number: the longest part, ending with a group, that can be a number; else all of it."""
    import phonenumbers

    prefix = "" if shown.startswith("+") else "+"
    for end in range(len(shown), 6, -1):
        if not shown[end - 1].isdigit() or (end < len(shown) and shown[end].isdigit()):
            continue
        digits = "".join(c for c in shown[:end] if c.isdigit())
        number = f"{prefix}{digits.removeprefix('00') if prefix else '+' + digits}"
        try:
            if phonenumbers.is_possible_number(phonenumbers.parse(number, None)):
                return end
        except phonenumbers.NumberParseException:
            continue
    return len(shown)


def _is_national(shown: str) -> bool:
    digits = "".join(c for c in shown if c.isdigit())
    return 9 <= len(digits) <= 12 or (len(digits) >= 7 and not shown.isdigit())


@lru_cache(maxsize=4_096)
def _valid(number: str) -> bool:
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, None))
    except phonenumbers.NumberParseException:
        return False


def _compiled(pattern: str) -> Any:
    """RE2 is linear in the text, whatever an operator writes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise SettingsError(f"redaction pattern {pattern!r} is no regular expression of RE2: {error}") from None
    if compiled.search("") is not None:
        raise SettingsError(f"redaction pattern {pattern!r} matches an empty text: let it want something")
    return compiled


def _region(region: str) -> str:
    import phonenumbers

    if region.upper() not in phonenumbers.SUPPORTED_REGIONS:
        raise SettingsError(f"{region!r} is no country of telephone numbers: write two letters, as GB or DE")
    return region.upper()
