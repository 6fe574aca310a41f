"""Whole documents of a collection, found by URL or id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.api.http.doors.stores import read
from thresher.api.http.parts import Parts
from thresher.api.service.principal import Principal
from thresher.corpus.collection import Collection
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.filters import parse_filter
from thresher.corpus.record.documents import load_chunks, matching_chunks


@dataclass(frozen=True, slots=True)
class Read:
    """A document with its whole text."""

    id: str
    title: str
    text: str


async def documents_at(
    caller: Principal, server: Parts, collection: str, urls: Sequence[str], filters: Mapping[str, Any] | None
) -> dict[str, Read]:
    """The documents that `urls` name, by URL or id, as far as the collection has them and the filter lets them pass.

    Raises:
        ApiError: 404, the caller has no such collection.
        InvalidFilter: `filters` does not follow the grammar.
    """
    if filters is not None:
        parse_filter(filters)  # also where there is no document to try it on

    def reading(opened: Collection) -> dict[str, Read]:
        found = {}
        for url in urls:
            if (document := _find(opened, url, filters)) is not None:
                found[url] = document
        return found

    return await read(caller, server, collection, reading)


async def whole_texts(caller: Principal, server: Parts, collection: str, ids: Sequence[str]) -> dict[str, str]:
    """The whole text of documents by id; one that was removed a moment ago is left out."""

    def reading(opened: Collection) -> dict[str, str]:
        texts = {}
        for document_id in ids:
            try:
                texts[document_id] = opened.text(document_id)
            except DocumentNotFound:
                continue
        return texts

    return await read(caller, server, collection, reading)


def _find(opened: Collection, url: str, filters: Mapping[str, Any] | None) -> Read | None:
    keys = ("uri", "document_id")
    named = {"type": "or", "filters": [{"type": "eq", "key": key, "value": url} for key in keys]}
    wanted = parse_filter(named if filters is None else {"type": "and", "filters": [named, filters]})
    with opened.record.read() as connection:
        found = list(load_chunks(connection, matching_chunks(connection, wanted, 1)).values())
    if not found:
        return None
    try:
        text = opened.text(found[0].document_id)
    except DocumentNotFound:
        return None
    return Read(found[0].document_id, found[0].title or found[0].document_id, text)
