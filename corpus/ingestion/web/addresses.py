"""Addresses as ids: one form for each, so that a page has one id however its address is written."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

_PORTS = {"http": 80, "https": 443}
_KEPT = "%/:=&?~#+!$,;'@()*[]"


class InvalidAddress(ValueError):
    """Not an address that can be fetched; the message says why."""


def is_address(text: str) -> bool:
    """Whether the text is an http or https URL rather than a path."""
    return text[:8].lower().startswith(("http://", "https://"))


def canonical(text: str) -> str:
    """The one form of a URL: scheme and host in lower case, no default port, no fragment, an explicit path without
    dot segments, which is what is really asked for.

    Raises:
        InvalidAddress: no http(s) URL with a host, or it carries a password, which would end up in the collection.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = (parts.hostname or ""), parts.port
    except ValueError as error:
        raise InvalidAddress(f"{text!r} is not a URL: {error}") from error
    if parts.scheme.lower() not in _PORTS or not host:
        raise InvalidAddress(f"{text!r} is not an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise InvalidAddress(
            f"the URL for {host} carries a name or password, which would be stored with its documents: leave it out"
        )
    if any(character.isspace() for character in parts.netloc):
        raise InvalidAddress(f"{text!r} is not a URL: its host has a space in it")
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme.lower()]:
        netloc += f":{port}"
    try:
        path, query = _resolved(quote(parts.path, safe=_KEPT)) or "/", quote(parts.query, safe=_KEPT)
        netloc.encode()
    except UnicodeEncodeError as error:
        raise InvalidAddress(f"{text!r} is not a URL: it has half a character in it") from error
    return urlunsplit((parts.scheme.lower(), netloc, path, query, ""))


def _resolved(path: str) -> str:
    """A path without `.` and `..` (RFC 3986, 5.2.4), however the dots are written."""
    kept: list[str] = []
    dots = ""
    for part in path.split("/"):
        dots = part.lower().replace("%2e", ".")
        if dots == ".." and len(kept) > 1:
            kept.pop()
        elif dots not in (".", ".."):
            kept.append(part)
    return "/".join([*kept, ""] if dots in (".", "..") else kept)
