"""Rich Text Format through striprtf."""

from __future__ import annotations

import re

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_TITLE = re.compile(r"\{\\info\b.{0,4000}?\{\\title\s+([^{}\\]{1,500})\}", re.DOTALL)
_PICTURE = re.compile(rb"(?:[0-9a-fA-F]{64,}[\r\n]*)+")
_BINARY = re.compile(rb"\\bin(\d{1,9}) ?")


def extract_rtf(data: bytes) -> Extracted:
    """The text of an RTF document.

    Raises:
        NoText: it holds no text.
        LoaderError: it is damaged or no RTF.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise LoaderError("this is not RTF: it does not begin with {\\rtf")
    from striprtf.striprtf import rtf_to_text

    page = _CODE_PAGE.search(data[:4096])
    encoding = f"cp{page.group(1).decode()}" if page else "cp1252"
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "cp1252"
    source = _PICTURE.sub(b"", _without_binary(data)).decode("latin-1")
    try:
        text = str(rtf_to_text(source, encoding=encoding, errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as error:  # IndexError and others on groups that do not close
        raise LoaderError(f"the RTF is damaged ({type(error).__name__}: {error})") from error
    text = re.sub(r"\n{3,}", "\n\n", normalise(text).replace("\f", "\n")).strip()
    if not text:
        raise NoText("the RTF document has no text")
    title = _TITLE.search(source[:20_000])
    return Extracted(text, one_line(normalise(title.group(1))) if title else "", {"format": "rtf"})


def _without_binary(data: bytes) -> bytes:
    """Without raw bytes of embedded objects, which could hold anything that looks like RTF."""
    out, place = [], 0
    while (found := _BINARY.search(data, place)) is not None:
        out.append(data[place : found.start()])
        place = found.end() + int(found.group(1))
    return b"".join([*out, data[place:]])
