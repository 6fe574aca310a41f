"""RSS (0.9 to 2.0, RDF) and Atom: a document an entry, with the entry's own address and date."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, Unsupported, clean_place, normalise, one_line
from thresher.corpus.loaders.xml import without_declaration

_ENTRIES = frozenset({"item", "entry"})
_BODIES = ("encoded", "content", "description", "summary")
_DATES = ("published", "pubdate", "date", "issued", "updated", "modified")
_TAG = re.compile(r"<[a-zA-Z/!][^>]*>|&[#\w]+;")


def feed_parts(data: bytes) -> Iterator[Part | BadRecord]:
    """Entries in the order of the feed. Metadata: `feed`, `date` (ISO 8601), `author`.

    A feed that is cut off or not well-formed gives what could be read and, last, a `BadRecord`.

    Raises:
        NoText: it has no entries.
        LoaderError: nothing of it can be read.
    """
    from lxml import etree

    source = without_declaration(data).lstrip()
    # huge_tree stays off: nesting, text length and entity expansion are limited by the parser.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, encoding="utf-8")
    try:
        root = etree.parse(io.BytesIO(source.encode("utf-8", "replace")), parser).getroot()
    except etree.XMLSyntaxError as error:
        raise LoaderError(f"the feed is not well-formed: {error}") from error
    if root is None:
        raise LoaderError("the feed is not well-formed")
    broken = next((error for error in parser.error_log if error.level_name == "FATAL"), None)
    entries = [element for element in root.iter() if _name(element) in _ENTRIES]
    channel = next((child for child in root if _name(child) == "channel"), root)
    feed = one_line(_text(_child(channel, "title")))
    if not entries and broken is not None:
        raise LoaderError(f"the feed is not well-formed: {broken.message.strip()} at line {broken.line}")
    if not entries:
        raise NoText("the feed has no entries")
    for number, entry in enumerate(entries, start=1):
        if broken is not None and number == len(entries):
            yield BadRecord(
                f"entry {number}", f"the feed is broken here: {broken.message.strip()} (line {broken.line})"
            )
            return
        yield _entry(entry, number, feed)


def _entry(entry: Any, number: int, feed: str) -> Part | BadRecord:
    title = one_line(_text(_child(entry, "title")))
    link = _link(entry)
    body = max((_text(_child(entry, name)) for name in _BODIES), key=len)
    text = "\n\n".join(part for part in (title, body) if part)
    if not text:
        return BadRecord(f"entry {number}", "neither a title nor a text", fault=False)
    author = _child(entry, "author")
    if author is None:
        author = _child(entry, "creator")
    metadata = {
        "format": "feed",
        "feed": feed,
        "date": _date(entry),
        "author": one_line(_text(_child(author, "name")) or _text(author)) if author is not None else "",
    }
    own = _child(entry, "guid")
    if own is None:
        own = _child(entry, "id")
    key = clean_place(_text(own)) or clean_place(link) or str(number)
    uri = link if link.startswith(("http://", "https://")) else ""
    return Part(text, title, {name: value for name, value in metadata.items() if value}, f"#{key}", uri=uri)


def _name(element: Any) -> str:
    tag = element.tag
    return tag.rsplit("}", 1)[-1].lower() if isinstance(tag, str) else ""


def _child(element: Any, name: str) -> Any:
    """The first child of that name; None if there is none, or no element."""
    if element is None:
        return None
    return next((child for child in element if _name(child) == name and not _is_media(child)), None)


def _is_media(element: Any) -> bool:
    return "search.yahoo.com/mrss" in str(element.tag)


def _text(element: Any) -> str:
    """The readable text of an element, whose content may be markup, escaped or not."""
    if element is None:
        return ""
    from lxml import etree

    if len(element) and _name(element) in (*_BODIES, "title"):
        markup = etree.tostring(element, encoding="unicode", with_tail=False)
    else:
        markup = "".join(element.itertext())
        if not _TAG.search(markup):
            return normalise(markup).replace("\f", "\n").strip()
    from thresher.corpus.loaders.html import extract_html

    try:
        return extract_html(f"<body>{markup}</body>".encode("utf-8", "replace")).text
    except (NoText, Unsupported):
        return ""


def _link(entry: Any) -> str:
    """Atom has several links with a relation, RSS one as text."""
    links = [child for child in entry if _name(child) == "link"]
    for link in links:
        if link.get("href") and link.get("rel", "alternate") == "alternate":
            return str(link.get("href")).strip()
    for link in links:
        if (link.text or "").strip():
            return str(link.text).strip()
    guid = _child(entry, "guid")
    address = (guid.text or "").strip() if guid is not None and guid.get("isPermaLink") != "false" else ""
    return address if address.startswith("http") else ""


def _date(entry: Any) -> str:
    for name in _DATES:
        raw = _text(_child(entry, name))
        if not raw:
            continue
        try:
            return datetime.fromisoformat(raw.replace("Z", "+00:00")).isoformat()
        except ValueError:
            try:
                return parsedate_to_datetime(raw).isoformat()
            except (ValueError, TypeError, IndexError, OverflowError):
                continue
    return ""
