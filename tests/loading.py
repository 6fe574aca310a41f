"""How the loader tests read files: in this process, without the child, unless isolation is the point."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from thresher.corpus.documents import Document
from thresher.corpus.loaders.base import BadRecord, Part
from thresher.corpus.loaders.dispatch import distinct, read_parts
from thresher.corpus.loaders.formats import format_of
from thresher.corpus.loaders.limits import Limits
from thresher.corpus.loaders.sniff import sniff


def parts(data: bytes, name: str, *, limits: Limits | None = None) -> list[Part | BadRecord]:
    """Everything in a file's bytes, as the child process would send it."""
    kind = sniff(data, format_of(PurePath(name)), name)
    return list(distinct(read_parts(data, kind, name, limits or Limits())))


def one(data: bytes, name: str) -> Part:
    """The only document."""
    (item,) = parts(data, name)
    assert isinstance(item, Part)
    return item


def texts(items: Iterable[Part | BadRecord | Document]) -> dict[str, str]:
    """Text by locator, or by id of documents."""
    return {
        item.locator if isinstance(item, Part) else item.id: item.text
        for item in items
        if not isinstance(item, BadRecord)
    }


def left_out(items: Iterable[Part | BadRecord | Document]) -> dict[str, str]:
    """Reason by place."""
    return {item.place: item.reason for item in items if isinstance(item, BadRecord)}
