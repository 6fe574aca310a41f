"""What a file is by its bytes, where they contradict its name: a `.doc` that is RTF, a `.csv` that is a web page."""

from __future__ import annotations

import re

from thresher.corpus.loaders.formats import Format
from thresher.corpus.loaders.languages import language_of

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_IMAGE_MAGICS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*", b"GIF87a", b"GIF89a")

_HEAD_BYTES = 8192
# Names that promise nothing about the inside; web pages, mails and feeds under them are read as what they are.
_OPEN = frozenset({Format.TEXT, Format.CSV, Format.TSV, Format.LEGACY, Format.MAIL, Format.MBOX})
_OFFICE = frozenset({Format.DOCX, Format.PPTX, Format.XLSX, Format.ODF, Format.LEGACY})

_HTML = re.compile(rb"(?:<\?xml[^>]*>|<!--.*?-->|\s)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_XML_ROOT = re.compile(
    rb"(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^<>\[]*(?:\[.*?\])?\s*>|\s)*<([A-Za-z_][\w.:-]*)", re.DOTALL
)
_FEED_ROOTS = frozenset({b"rss", b"feed", b"rdf:rdf"})
_HEADER = re.compile(rb"[!-9;-~]+:(?:[ \t]|\r?\n[ \t])")
_MBOX = re.compile(rb"From [^\r\n]{3,998}\r?\n[!-9;-~]+:")
# Only machines write these; a memo that begins with From and Subject stays text.
_MAIL_ONLY = re.compile(
    rb"^(?:message-id|received|mime-version|return-path|delivered-to):", re.IGNORECASE | re.MULTILINE
)
_MAIL_TOO = re.compile(rb"^(?:from|date|subject|to):", re.IGNORECASE | re.MULTILINE)


def sniff(data: bytes, kind: Format, name: str = "") -> Format:
    """The format of `data`, which is called `kind` by its name. Any ZIP package comes out as `ZIP`.

    What a plugin reads stays the plugin's: formats of others are often a ZIP or XML inside.
    """
    if kind is Format.PLUGIN:
        return kind
    if data.startswith(ZIP_MAGICS):
        return Format.ZIP
    if data.startswith(OLE_MAGIC):
        return Format.LEGACY
    if data.startswith(b"{\\rtf"):
        return Format.RTF
    if data.startswith(_IMAGE_MAGICS) or (data.startswith(b"RIFF") and data[8:12] == b"WEBP"):
        return Format.IMAGE
    head = data[:_HEAD_BYTES]
    if b"\x00" in head:  # UTF-16's Latin letters
        head = head.replace(b"\x00", b"").removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"%PDF-"):
        return Format.PDF
    if kind in _OPEN or kind in _OFFICE:
        return _among_texts(head, kind, name)
    if kind in (Format.XML, Format.FEED, Format.HTML):
        return _markup(head, kind)
    return kind


def _among_texts(head: bytes, kind: Format, name: str) -> Format:
    if _HTML.match(head):
        return Format.HTML
    if _MBOX.match(head):
        return Format.MBOX
    if kind in (Format.MAIL, Format.MBOX):
        return Format.MAIL
    if _is_mail(head):
        return Format.MAIL
    bare = kind is Format.TEXT and "." not in name
    if head.startswith(b"<?xml") and (bare or kind is Format.LEGACY or name.lower().endswith(".txt")):
        return _markup(head, Format.XML)
    if kind is Format.LEGACY and head and not _is_binary(head):
        return Format.CSV if name.lower().endswith(".xls") else Format.TEXT
    return Format.CODE if bare and language_of(name, head) else kind


def _markup(head: bytes, kind: Format) -> Format:
    if _HTML.match(head):
        return Format.HTML
    if kind is Format.HTML:
        return kind
    root = _XML_ROOT.match(head)
    return Format.FEED if root and root.group(1).lower() in _FEED_ROOTS else Format.XML


def _is_mail(head: bytes) -> bool:
    """Whether bytes begin with the header of a mail, of the kind that only mail programs write."""
    if not _HEADER.match(head):
        return False
    header = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0]
    return bool(_MAIL_ONLY.search(header) and _MAIL_TOO.search(header))


def _is_binary(head: bytes) -> bool:
    odd = sum(1 for byte in head if byte < 9 or 13 < byte < 27)
    return odd > 0.02 * len(head)
