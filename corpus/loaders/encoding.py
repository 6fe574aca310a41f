"""Bytes to text without asking the locale.

In order: a byte order mark; UTF-16 recognised by its NULs; strict UTF-8 (which other encodings hardly ever satisfy by
chance, so it beats a declaration); what the file declares; UTF-8 with stray bytes of Windows-1252, the usual result of
concatenated files; EBCDIC by its blanks; and last a statistical guess.
"""

from __future__ import annotations

import codecs
import re

from thresher.corpus.loaders.base import Unsupported

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESS_BYTES = 1 << 16
_STRAY = re.compile("[\udc80-\udcff]")
_MULTIBYTE = re.compile("[^\x00-\x7f\udc80-\udcff]")
_ODD = re.compile("[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")
_ODD_SHARE = 0.05
_NUL_SHARE = 0.3


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of `data`.

    Args:
        declared: the encoding that the file names itself, if any (an HTML meta tag).

    Raises:
        Unsupported: the bytes are not text.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    wide = _utf16_without_mark(data)
    if wide:
        return data.decode(wide, "replace")
    if not declared and b"\x1b$" in data:
        declared = "iso2022_kr" if b"\x1b$)C" in data else "iso2022_jp_2"
    if b"\x1b" not in data or not declared:  # ISO-2022 is ASCII to UTF-8's eyes; it is declared or has escapes
        try:
            return _checked(data.decode("utf-8"))
        except UnicodeDecodeError:
            pass
    if declared:
        try:
            return _checked(data.decode(_wider(codecs.lookup(declared).name)))
        except (LookupError, ValueError):  # a name of no encoding, or not that of these bytes
            pass
    patched = data.decode("utf-8", "surrogateescape")
    stray = len(_STRAY.findall(patched))
    if len(_MULTIBYTE.findall(patched)) > stray:  # in other encodings, valid sequences are rare accidents
        return _checked(_STRAY.sub(_as_windows_1252, patched))
    return _checked(_guess(data))


# What is declared as the first is nearly always written as the second, which has more characters.
_WIDER = {
    "ascii": "utf-8",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "cp950",
}


def _wider(name: str) -> str:
    return _WIDER.get(name, name)


def _utf16_without_mark(data: bytes) -> str | None:
    """UTF-16 shows by NULs in every other byte of its Latin characters, or by blanks and line ends between others."""
    sample = data[:_GUESS_BYTES]
    if len(sample) < 8 or len(data) % 2:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    # Text of other scripts has NULs only in its blanks, line ends and digits, but all on one side.
    for name, here, there in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if here >= 2 and here > 0.02 * half and not there:
            try:
                text = sample.decode(name)
            except UnicodeDecodeError:
                continue
            letters = sum(1 for character in text if character.isalpha())
            if (
                _ODD.search(text) is None
                and letters > 0.6 * len(text)
                and len({ord(character) >> 8 for character in text}) < 0.2 * len(text) + 3
            ):
                return name
    return None


def _as_windows_1252(match: re.Match[str]) -> str:
    return bytes([ord(match.group()) - 0xDC00]).decode("cp1252", "replace")


def _guess(data: bytes) -> str:
    from thresher.corpus.loaders.guess import guess_encoding

    try:
        return data.decode(guess_encoding(data[:_GUESS_BYTES]), "replace")
    except LookupError:
        return data.decode("cp1252", "replace")


def _checked(text: str) -> str:
    """`text`, unless too much of it is control characters."""
    sample = text[:_GUESS_BYTES]
    if len(_ODD.findall(sample)) > _ODD_SHARE * len(sample) or sample.count("\x00") > _NUL_SHARE * len(sample):
        raise Unsupported("the content is binary, not text")
    return text
