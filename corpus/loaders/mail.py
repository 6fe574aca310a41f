"""Mail (RFC 822 and MIME): header and body as one document, attachments as further ones.

The standard library's parser is used with its old policy: it accepts anything, where the newer one raises on many
malformed headers. Words in headers are decoded here, with the same guesses for wrong charsets as for any text.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from email.utils import parsedate_to_datetime

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, Unsupported, normalise, one_line
from thresher.corpus.loaders.dispatch import read_member
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.loaders.formats import Format
from thresher.corpus.loaders.limits import Limits

# In one mail, nested messages included; bombs nest or repeat parts without end.
_MOST_PARTS = 2000
_DEEPEST_PART = 50
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_LONGEST_HEADER = 2000
_ENCRYPTED = frozenset({"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"})
_PGP = "-----BEGIN PGP MESSAGE-----"
_NOT_MEANT_TO_BE_READ = frozenset(
    {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
)
_UTF16 = re.compile(rb"\A(?:\xff\xfe|\xfe\xff|[!-~]\x00[!-~]\x00|\x00[!-~]\x00[!-~])")
_HEADER_LINE = re.compile(rb"[!-9;-~]+[ \t]*:|[ \t]|From ")
_LOOSE_LINES = 200


def mail_parts(data: bytes, limits: Limits) -> Iterator[Part | BadRecord]:
    """The mail, then its attachments; a forwarded message is an attachment called `message.eml`.

    The text is the readable header lines and the body: its plain-text form, else its HTML. Metadata: `from`, `to`,
    `date` (ISO 8601), `message_id`, `attachments` (their names).

    Raises:
        NoText: neither subject nor body nor attachment holds anything.
        Unsupported: it is no mail.
    """
    message = BytesParser(policy=compat32).parsebytes(_tidied(data))
    if not message.keys():
        raise Unsupported("this is not a mail: it has no header")
    found = _Content()
    _collect(message, found, 0)
    if limits.ocr:
        found.attachments += found.pictures
    body = "\n\n".join(text.strip() for text in found.plain or found.html)
    header = {name: text for name in _SHOWN if (text := header_text(message, name))}
    if found.encrypted or (_PGP in body and body.strip().startswith("-----BEGIN")):
        body = ""
        yield BadRecord("body", "the mail is encrypted; only its header can be read", fault=False)
    if not body and not header.get("Subject") and not found.attachments:
        if found.encrypted:
            raise LoaderError("the mail is encrypted; save it decrypted")
        raise NoText("the mail has neither a subject nor a body")
    lines = "\n".join(f"{name}: {text}" for name, text in header.items())
    text = normalise(f"{lines}\n\n{body}" if body else lines).replace("\f", "\n").strip()
    subject = one_line(header.get("Subject", ""))
    if text:
        yield Part(text, subject, _metadata(message, header, found))
    about = {key: value for key, value in (("attached_to", subject), ("date", _date(message))) if value}
    with limits.inside():
        for name, content, kind in found.attachments:
            limits.spend(len(content))
            for item in read_member(content, name, limits, kind):
                if isinstance(item, Part):
                    yield Part(item.text, item.title, {**about, **item.metadata}, item.locator, uri=item.uri)
                else:
                    yield item


def header_text(message: Message, name: str) -> str:
    """A header, decoded, on one line; empty if it is missing."""
    # Raw, because `get` puts replacement characters where a header holds bytes beyond ASCII.
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    try:
        words = decode_header(raw.replace("\r", "").replace("\n", ""))
    except (HeaderParseError, ValueError, binascii.Error, IndexError):
        return one_line(normalise(raw), _LONGEST_HEADER)
    pieces = []
    for word, charset in words:
        if isinstance(word, str):
            pieces.append(_unescaped(word))
        else:
            pieces.append(_decoded(word, charset if charset != "unknown-8bit" else None))
    return one_line(normalise("".join(pieces)), _LONGEST_HEADER)


@dataclass(slots=True)
class _Content:
    """What the walk over a mail's parts found."""

    plain: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    attachments: list[tuple[str, bytes, Format | None]] = field(default_factory=list)
    pictures: list[tuple[str, bytes, Format | None]] = field(default_factory=list)  # shown inside the HTML: logos
    encrypted: bool = False
    parts: int = 0


def _collect(part: Message, found: _Content, depth: int) -> None:
    found.parts += 1
    if found.parts > _MOST_PARTS or depth > _DEEPEST_PART:
        raise LoaderError(f"the mail has more than {_MOST_PARTS:,} parts, or they nest deeper than {_DEEPEST_PART}")
    kind = part.get_content_type()
    if kind in _ENCRYPTED and "signed" not in str(part.get_param("smime-type", "")):
        found.encrypted = True
        return
    payload = part.get_payload()
    if kind == "message/rfc822" or (kind == "message/global" and isinstance(payload, list)):
        inner = payload[0] if isinstance(payload, list) and payload else None
        if isinstance(inner, Message):
            found.attachments.append((_file_name(part) or "message.eml", _as_bytes(inner), Format.MAIL))
        return
    if isinstance(payload, list):
        children = [child for child in payload if isinstance(child, Message)]
        if kind == "multipart/alternative":
            _collect_alternatives(children, found, depth)
        else:
            for child in children:
                _collect(child, found, depth + 1)
        return
    if kind in _NOT_MEANT_TO_BE_READ:
        return
    _collect_leaf(part, kind, found)


def _collect_alternatives(children: list[Message], found: _Content, depth: int) -> None:
    """The first form that is plain text and not empty; else what the last ones hold."""
    for child in children:
        if child.get_content_type() == "text/plain":
            inner = _Content(parts=found.parts)
            _collect(child, inner, depth + 1)
            if inner.plain:
                found.parts = inner.parts
                found.plain += inner.plain
                # The other forms say the same; what is attached beside them does not.
                for other in children:
                    if other is not child and other.get_content_maintype() == "multipart":
                        beside = _Content(parts=found.parts)
                        _collect(other, beside, depth + 1)
                        found.parts = beside.parts
                        found.attachments += beside.attachments
                        found.pictures += beside.pictures
                return
    for child in children:
        _collect(child, found, depth + 1)


def _collect_leaf(part: Message, kind: str, found: _Content) -> None:
    name = _file_name(part)
    disposition = str(part.get("Content-Disposition", "")).strip().lower()
    content = _content(part)
    # A multipart whose boundary never comes is read as the text that it is.
    is_text = kind in ("text/plain", "text/html", "text/enriched") or kind.startswith("multipart/")
    is_body = is_text and not disposition.startswith("attachment")
    if is_body and not (name and disposition.startswith("inline") and (found.plain or found.html)):
        charset = part.get_param("charset")
        text = _decoded(content, charset if isinstance(charset, str) else None, html=kind == "text/html")
        if text.strip():
            (found.html if kind == "text/html" else found.plain).append(text)
        return
    if content.strip():
        shown = kind.startswith("image/") and part.get("Content-ID") and not disposition.startswith("attachment")
        group = found.pictures if shown else found.attachments
        group.append((name or f"part-{found.parts}{_SUFFIX_OF_TYPE.get(kind, '')}", content, None))


_SUFFIX_OF_TYPE = {
    "application/json": ".json",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/rtf": ".rtf",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/xml": ".xml",
    "application/zip": ".zip",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/tiff": ".tiff",
    "text/calendar": ".ics",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/plain": ".txt",
}


def _content(part: Message) -> bytes:
    """The decoded bytes of a leaf. Broken base64 and quoted-printable give what can be read of them."""
    try:
        content = part.get_payload(decode=True)
    except Exception:  # codecs that no one else knows
        content = None
    if isinstance(content, bytes):
        return content
    raw = part.get_payload()
    return raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else b""


def _decoded(content: bytes, charset: str | None, *, html: bool = False) -> str:
    try:
        if html:
            from thresher.corpus.loaders.html import extract_html

            return extract_html(content, charset).text
        return decode(content, charset)
    except (NoText, Unsupported):
        return ""


def _unescaped(text: str) -> str:
    """Raw bytes in a header come as lone surrogates."""
    if not any("\udc80" <= character <= "\udcff" for character in text):
        return text
    return _decoded(text.encode("utf-8", "surrogateescape"), None)


def _file_name(part: Message) -> str:
    try:
        name = part.get_filename()
    except Exception:  # malformed RFC 2231 parameters
        return ""
    if not name:
        return ""
    shadow = Message()
    shadow["Subject"] = name.replace("\r", "").replace("\n", "")
    return header_text(shadow, "Subject").replace("/", "_").replace("\\", "_")[:200]


def _as_bytes(message: Message) -> bytes:
    try:
        return message.as_bytes()
    except Exception:  # headers that cannot be written back
        return str(message).encode("utf-8", "surrogateescape")


def _metadata(message: Message, header: dict[str, str], found: _Content) -> dict[str, str]:
    names = ", ".join(name for name, _, _ in found.attachments)
    values = {
        "format": "mail",
        "from": header.get("From", ""),
        "to": header.get("To", ""),
        "date": _date(message),
        "message_id": header_text(message, "Message-ID").strip("<> "),
        "attachments": normalise(names),
    }
    return {key: value[:1000] for key, value in values.items() if value}


def _date(message: Message) -> str:
    try:
        return parsedate_to_datetime(header_text(message, "Date")).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""


def _tidied(data: bytes) -> bytes:
    """Bytes that the parser understands: one byte a character, no lines before the header, no junk inside it.

    A line in the header that is none would end it; some mail programs write one, and others end the header with a
    line of blanks.
    """
    if _UTF16.match(data):
        data = decode(data).encode("utf-8", "replace")
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if data.startswith(b"From ") or data.startswith(b">From "):
        data = data.split(b"\n", 1)[1] if b"\n" in data else b""
    lines = data.split(b"\n", _LOOSE_LINES)
    for place, line in enumerate(lines[:_LOOSE_LINES]):
        if not line.strip():
            if line.strip(b"\r"):  # only blanks: meant as the end
                lines[place] = b"\r" if line.endswith(b"\r") else b""
            return b"\n".join(lines)
        if not _HEADER_LINE.match(line):
            following = lines[place + 1 : _LOOSE_LINES]
            goes_on = (
                bool(following) and bool(_HEADER_LINE.match(following[0])) and b"" in [f.strip() for f in following]
            )
            if place == 0 or not goes_on:
                return b"\n".join(lines)
            lines[place] = b"X-Malformed: " + line
    return b"\n".join(lines)
