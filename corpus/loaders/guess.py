"""Which encoding bytes are in that are not UTF-8 and do not say.

Rules for the encodings whose letters a general guesser mixes up on short texts come first: EBCDIC, Latin letters with
the accents of one western language, Cyrillic, Greek and Hebrew, and the multi-byte encodings of Chinese, Japanese and
Korean. Each rule needs what only that encoding would give: lower-case letters that are frequent in the language, kana,
common Hangul or Han characters. The rest goes to charset-normalizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Single-byte encodings that a guess may end in; without the list, rare ones win on short texts.
_PLAUSIBLE = [
    "ascii",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "cp1254",
    "cp1255",
    "cp1256",
    "cp1257",
    "cp1258",
    "cp437",
    "cp850",
    "cp852",
    "iso8859_2",
    "iso8859_15",
    "mac_roman",
    "tis_620",
]
# Letters beyond ASCII, by language; a text needs those of one.
_WESTERN = tuple(
    frozenset(letters + letters.upper() + "–—‘’“”„…«»°§€£•·©®")
    for letters in (
        "äöüß",
        "àâçéèêëîïôœùûü",
        "áéíñóúü¿¡ºª",
        "àèéìíòóùú",
        "áâãàçéêíóôõúü",
        "åäöøæé",
        "áéëèïíóöü",
    )
)
# Encodings of other alphabets: their lower-case letters (or all, where there is but one case), and the frequent ones.
_RUSSIAN = (re.compile("[а-яёіїєґ]"), frozenset("оеаинтсрвл"))
_GREEK = (re.compile("[α-ωάέήίόύώ]"), frozenset("αοιετσνηυρ"))
_HEBREW = (re.compile("[א-ת]"), frozenset("יוהלארתשמב"))
_ALPHABETS = (
    ("cp1251", _RUSSIAN),
    ("koi8-r", _RUSSIAN),
    ("cp866", _RUSSIAN),
    ("iso8859_5", _RUSSIAN),
    ("cp1253", _GREEK),
    ("cp1255", _HEBREW),
)
_LEAST_LOWER = 0.7
_LEAST_FREQUENT = 0.35
_KANA = re.compile("[\u3041-\u309f\u30a1-\u30ff]")
_HAN = re.compile("[\u4e00-\u9fff]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_HALF_WIDTH = re.compile("[\uff61-\uff9f]")


def guess_encoding(sample: bytes) -> str:
    """The name of the likeliest encoding; `cp1252` if nothing speaks for any."""
    rules = (_ebcdic, _western, _alphabetic, _east_asian, _statistical)
    return next((name for rule in rules if (name := rule(sample))), "cp1252")


def _ebcdic(sample: bytes) -> str | None:
    """EBCDIC's blank is 0x40, its letters are above 0x80; ASCII's letters hardly occur."""
    count = len(sample)
    letters = sum(1 for byte in sample if 0x81 <= byte <= 0xA9 or 0xC1 <= byte <= 0xE9)
    ascii_letters = sum(1 for byte in sample if 0x61 <= byte <= 0x7A)
    if count < 20 or letters < 0.35 * count or ascii_letters > 0.1 * count or sample.count(b"\x40") < 0.05 * count:
        return None
    text = sample.decode("cp500")
    good = sum(1 for character in text if character.isalnum() or character in " .,;:'\"!?()-/\r\n\t\x85")
    return "cp500" if good > 0.9 * count else None


def _western(sample: bytes) -> str | None:
    """Windows-1252 where every letter beyond ASCII belongs to one western European language."""
    high = [byte for byte in sample if byte >= 0x80]
    letters = sum(1 for byte in sample if 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A)
    if len(high) > 0.5 * letters:
        return None
    text = bytes(high).decode("cp1252", "replace")
    return "cp1252" if any(all(character in own for character in text) for own in _WESTERN) else None


def _east_asian(sample: bytes) -> str | None:
    japanese = _decoded(sample, "cp932")
    if japanese is not None:
        kana, han, half = (len(kind.findall(japanese)) for kind in (_KANA, _HAN, _HALF_WIDTH))
        if kana + han and kana >= 0.1 * (kana + han) and half <= 0.2 * (kana + han + half):
            return "cp932"
    paired = _decoded(sample, "gb18030")
    if paired is not None and (wide := len(_HAN.findall(paired)) + len(_KANA.findall(paired))):
        if len(_KANA.findall(paired)) > 0.15 * wide and _decoded(sample, "euc_jp") is not None:
            return "euc_jp"
        korean = _decoded(sample, "cp949")
        if korean is not None and len(_HANGUL.findall(korean)) > 0.8 * wide and _common_hangul(sample) > 0.7:
            return "cp949"
        if _common_chinese(sample) > 0.8:
            return "gb18030"
    if japanese is not None and paired is None:
        han, half = len(_HAN.findall(japanese)), len(_HALF_WIDTH.findall(japanese))
        if han > 2 * half and han * 2 > 0.5 * sum(1 for byte in sample if byte >= 0x80):
            return "cp932"
    taiwanese = _decoded(sample, "cp950")
    if taiwanese is not None and (han := len(_HAN.findall(taiwanese))) and _frequent_big5(sample) > 0.8 and han > 3:
        return "cp950"
    return None


def _common_chinese(sample: bytes) -> float:
    """The share of two-byte characters in GB 2312's first level (common ones) or its punctuation."""
    return _share(sample, lambda lead, trail: trail >= 0xA1 and (0xB0 <= lead <= 0xD7 or lead in (0xA1, 0xA3)))


def _common_hangul(sample: bytes) -> float:
    """The share of two-byte characters that are syllables of KS X 1001."""
    return _share(sample, lambda lead, trail: 0xB0 <= lead <= 0xC8 and trail >= 0xA1)


def _frequent_big5(sample: bytes) -> float:
    """The share of two-byte characters in Big5's first level or its punctuation."""
    return _share(sample, lambda lead, trail: 0xA4 <= lead <= 0xC6 or lead == 0xA1)


def _share(sample: bytes, common: Callable[[int, int], bool]) -> float:
    place = pairs = hits = 0
    while place + 1 < len(sample):
        if sample[place] < 0x80:
            place += 1
            continue
        pairs += 1
        hits += common(sample[place], sample[place + 1])
        place += 2
    return hits / pairs if pairs else 0.0


def _alphabetic(sample: bytes) -> str | None:
    """The encoding of another alphabet under which most letters are lower-case, and frequent ones."""
    best, best_score = None, _LEAST_FREQUENT
    high = sum(1 for byte in sample if byte >= 0x80)
    letters = high + sum(1 for byte in sample if 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A)
    if high < 6 or high < 0.3 * letters:  # words in Latin letters with accents
        return None
    for name, (lower, frequent) in _ALPHABETS:
        text = sample.decode(name, "replace")
        if len(lower.findall(text)) < _LEAST_LOWER * high:
            continue
        score = sum(1 for character in text if character in frequent) / high
        if score > best_score:
            best, best_score = name, score
    return best


def _statistical(sample: bytes) -> str | None:
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=_PLAUSIBLE).best() or from_bytes(sample).best()
    return best.encoding if best is not None else None


def _decoded(sample: bytes, encoding: str) -> str | None:
    """The sample in that encoding, or None if it is not; a character that the sample's end cuts is forgiven."""
    for end in (len(sample), len(sample) - 1, len(sample) - 2, len(sample) - 3):
        try:
            return sample[: max(end, 0)].decode(encoding)
        except UnicodeDecodeError as error:
            if error.start < len(sample) - 4:
                return None
    return None
