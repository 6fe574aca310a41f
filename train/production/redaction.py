"""Takes personal data and secrets out of a record, before it reaches the disk.

One `Redactor` a record: what is found twice gets the same placeholder twice (`[email-1]`), and the next record begins
anew, so that placeholders link nothing across records.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import unquote

from thresher.train.production.detectors import Detector, Span

_ROUNDS = 12
"""How often a text is looked at again after something was taken out; one that is not clean then goes whole."""

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and the marks of interlinear notes."""
_OTHER_DIGIT = re.compile(r"[^\D0-9]")
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})|\\+x([0-9a-fA-F]{2})")
_SEPARATORS = re.compile(r"[\s.\-/()]")


class Redactor:
    """Redacts the texts of one record.

    Attributes:
        counts: how much was taken out so far, by kind.
        exempt: tokens that look random and are ids of the engine's own.
    """

    def __init__(self, detector: Detector, *, exempt: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.exempt: frozenset[str] = frozenset(exempt)
        self._detector = detector
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._seen: dict[str, str] = {}

    def clean(self, text: str) -> bool:
        """Whether there is nothing to take out."""
        return not any(self._detector.find(way, exempt=self.exempt) for way in _readings(text))

    def text(self, text: str) -> str:
        """The text without what must not be kept; the same object if that is nothing.

        It is also looked at as it reads without invisible characters and escapes; if only that shows something, that
        reading is what is returned, without it.
        """
        if text in self._seen:
            return self._seen[text]
        result = text
        for _ in range(_ROUNDS):  # what was taken out may have hidden that what stood beside it is something, too
            for way in _readings(result):
                if spans := self._detector.find(way, exempt=self.exempt):
                    result = self._replaced(way, spans)
                    break
            else:
                break
        else:
            result = self._name("text", result)
        if len(self._seen) < 10_000:
            self._seen[text] = result
        return result

    def arguments(self, text: str) -> str:
        """JSON text, as a policy wrote it: its strings and names are redacted, and it stays JSON where it was."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        redacted = self.value(data)
        if redacted != data:
            text = json.dumps(redacted, ensure_ascii=False, separators=(", ", ": "))
        return self.text(text)  # a name that stands twice is read once

    def value(self, data: Any) -> Any:
        """Plain data, with all its strings, names and long numbers redacted."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, dict):
            return {self.text(name): self.value(each) for name, each in data.items()}
        if isinstance(data, list | tuple):
            return type(data)(self.value(each) for each in data)
        if isinstance(data, int) and not isinstance(data, bool) and abs(data) >= 10**8:
            shown = str(data)
            redacted = self.text(shown)
            return data if redacted == shown else redacted
        return data

    def _replaced(self, text: str, spans: Collection[Span]) -> str:
        if not spans:
            return text
        parts, at = [], 0
        for span in spans:
            parts += [text[at : span.start], self._name(span.kind, text[span.start : span.end])]
            at = span.end
        return "".join((*parts, text[at:]))

    def _name(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        same = kind, (value if kind in ("secret", "custom", "text") else _SEPARATORS.sub("", value).casefold())
        if kind == "email":
            same = kind, value.casefold().replace("%40", "@")
        if same not in self._names:
            self._numbers[kind] += 1
            self._names[same] = f"[{kind}-{self._numbers[kind]}]"
        return self._names[same]


def _readings(text: str) -> list[str]:
    """The text, and what it reads as without invisible characters and escapes, up to three deep."""
    found = new = {text: None}
    for _ in range(3):
        new = {way: None for each in new for way in _other_ways(each) if way not in found}
        found = {**found, **new}
    return list(found)


def _plain(text: str) -> str:
    """Without invisible characters; digits of all scripts as 0 to 9, dots of domain names (RFC 3490) as dots."""
    shown = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).replace("\u3002", ".")
    return _OTHER_DIGIT.sub(lambda found: str(unicodedata.decimal(found[0])), shown)


def _other_ways(text: str) -> list[str]:
    """What a text reads as in one step, where that differs."""
    ways = [] if text.isascii() else [_plain(text)]
    if "%" in text:
        ways.append(unquote(text))
    if "&" in text:
        ways.append(html.unescape(text))
    if "\\" in text:
        ways.append(_ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text))
    return [way for way in dict.fromkeys(ways) if way != text]
