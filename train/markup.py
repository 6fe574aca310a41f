"""HTML that cannot be broken by what stands in it: text is escaped unless it was made by `tag`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

# C0 and C1 controls but tab and newline, and lone surrogates, which a file of HTML cannot hold; and the controls that
# turn the direction of text around, with which a passage could rewrite what stands beside it.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
_VOID = frozenset({"meta", "link", "br", "img", "rect", "line"})
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")


class Html(str):
    """A piece of HTML, safe as it is. Only this module makes it."""

    __slots__ = ()


def text(value: object) -> Html:
    """Foreign text as HTML."""
    return Html(html.escape(_UNFIT.sub("\ufffd", str(value).replace("\r\n", "\n")), quote=True))


def join(*children: str | Html | Iterable[str | Html | None] | None) -> Html:
    """Pieces one after the other: HTML as it is, text escaped, None left out."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(text(child))
        else:
            parts.extend(join(item) for item in child)
    return Html("".join(parts))


def tag(
    element: str,
    /,
    *children: str | Html | Iterable[str | Html | None] | None,
    **attributes: str | int | float | bool | None,
) -> Html:
    """An element. In the names of attributes a trailing underscore is dropped, others become hyphens.

    An attribute that is True stands without a value; one that is None or False is left out.
    """
    if not _NAME.fullmatch(element):
        raise ValueError(f"{element!r} is no name of an element")
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _VOID:
        return Html(f"<{element}{written}>" if element not in ("rect", "line") else f"<{element}{written}/>")
    return Html(f"<{element}{written}>{join(*children)}</{element}>")


def raw(element: str, content: str, **attributes: str) -> Html:
    """A `style` or `script` element around text of this package, which must not be able to close it."""
    if "</" in content:
        raise ValueError(f"the text of a {element} element must not hold a closing tag")
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{element}{written}>{content}</{element}>")


def web_address(uri: str) -> str | None:
    """`uri` if it leads to a web page; None for anything else: `javascript:` or `data:` must not become a link."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return uri if parts.scheme in ("http", "https") and parts.netloc else None


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(name) or name.startswith("on"):
        raise ValueError(f"{name!r} is no attribute that a page may have")
    return f" {name}" if value is True else f' {name}="{text(value)}"'
