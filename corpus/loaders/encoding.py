"""Bytes to text without asking the locale.

In order: a byte order mark; UTF-16 recognised by its NULs; strict UTF-8 (which other encodings hardly ever satisfy by
chance, so it beats a declaration); what the file declares; UTF-8 with stray bytes of Windows-1252, the usual result of
concatenated files; and last a statistical guess.
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
    if b"\x1b" not in data or not declared:  # ISO-2022 is ASCII to UTF-8's eyes, but it is always declared
        try:
            return _checked(data.decode("utf-8"))
        except UnicodeDecodeError:
            pass
    if declared:
        try:
            return _checked(data.decode(codecs.lookup(declared).name))
        except (LookupError, UnicodeDecodeError):
            pass
    patched = data.decode("utf-8", "surrogateescape")
    stray = len(_STRAY.findall(patched))
    if len(_MULTIBYTE.findall(patched)) > stray:  # in other encodings, valid sequences are rare accidents
        return _checked(_STRAY.sub(_as_windows_1252, patched))
    return _checked(_guess(data))


def _utf16_without_mark(data: bytes) -> str | None:
    """UTF-16 shows by NULs in every other byte of its Latin characters."""
    sample = data[:_GUESS_BYTES]
    if len(sample) < 8 or len(data) % 2:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _as_windows_1252(match: re.Match[str]) -> str:
    return bytes([ord(match.group()) - 0xDC00]).decode("cp1252", "replace")


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes

    sample = data[:_GUESS_BYTES]
    best = from_bytes(sample).best()
    if best is not None:
        try:
            return data.decode(best.encoding, "replace")
        except LookupError:
            pass
    return data.decode("cp1252", "replace")


def _checked(text: str) -> str:
    """`text`, unless too much of it is control characters."""
    sample = text[:_GUESS_BYTES]
    if len(_ODD.findall(sample)) > _ODD_SHARE * len(sample) or sample.count("\x00") > _NUL_SHARE * len(sample):
        raise Unsupported("the content is binary, not text")
    return text
