"""Results as web search clients expect them: one a page, and filters by site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from thresher.api.errors import ApiError
from thresher.api.http.doors.asking import relevances
from thresher.api.schema import ResultModel, SearchResponse

PASSAGES_A_PAGE = 3
"""Passages of one document that its result holds at most."""

BETWEEN = " [...] "
"""Between passages that do not follow each other, as such clients know it."""

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_-]+(\.[a-z0-9_-]+)*(:\d{1,5})?")


class Place(BaseModel):
    """Where a part of a result's text stands: characters `[start, end)` of the document."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    """A document among the results. `passages` are in reading order; `score` is that of the best, in 0..1."""

    score: float
    passages: tuple[ResultModel, ...]

    @property
    def best(self) -> ResultModel:
        """A passage to name the document by: all have the same document."""
        return self.passages[0]

    @property
    def text(self) -> str:
        """The passages, with `[...]` where something is left out between two."""
        text, end = "", None
        for passage in self.passages:
            if end is not None and passage.start < end:  # they overlap: what stands in both is told once
                text += passage.text[end - passage.start :]
            else:
                text += (BETWEEN if end not in (None, passage.start) else "") + passage.text
            end = max(end or 0, passage.end)
        return text

    @property
    def places(self) -> list[Place]:
        """Where the passages stand."""
        return [Place(start=passage.start, end=passage.end) for passage in self.passages]


def pages(responses: Sequence[SearchResponse], most: int, *, passages: int = PASSAGES_A_PAGE) -> list[Page]:
    """The documents that were found, best first, each once, with their best passages.

    Several responses take turns: the first document of each, then the second ones.
    """
    lists = [list(zip(relevances(response.results), response.results, strict=True)) for response in responses]
    found: dict[tuple[str, str], list[tuple[float, ResultModel]]] = {}
    for place in range(max(map(len, lists), default=0)):
        for results in lists:
            if place < len(results):
                score, result = results[place]
                found.setdefault((result.collection, result.document_id), []).append((score, result))
    return [_page(held, passages) for held in list(found.values())[:most]]


def _page(held: list[tuple[float, ResultModel]], most: int) -> Page:
    distinct: dict[tuple[int, int], ResultModel] = {}
    for _, result in held:
        distinct.setdefault((result.start, result.end), result)
    kept = sorted(list(distinct.values())[:most], key=lambda result: (result.start, result.end))
    return Page(max(score for score, _ in held), tuple(kept))


def site_filter(include: Sequence[str] | None, exclude: Sequence[str] | None, param: str) -> dict[str, Any] | None:
    """A metadata filter for documents whose URL is on one of some sites, or on none of them.

    A site is a host name, `www.` before it or not; its other subdomains are sites of their own.

    Raises:
        ApiError: 422, something is no host name.
    """
    parts = []
    if include:
        parts.append(_any([_on(url) for site in include for url in _urls(site, param)]))
    if exclude:
        parts.extend(_off(url) for site in exclude for url in _urls(site, param))
    return parts[0] if len(parts) == 1 else {"type": "and", "filters": parts} if parts else None


def _any(filters: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "or", "filters": filters}


def _urls(site: str, param: str) -> list[str]:
    """How URLs on a site begin, without the slash."""
    host = site.strip().lower().removeprefix("https://").removeprefix("http://").rstrip("/")
    if not _HOST.fullmatch(host):
        message = f"{param}: {site[:100]!r} is no host name; paths and patterns are not supported here"
        raise ApiError(422, "invalid_field", message, param=param)
    bare = host.removeprefix("www.")
    return [f"{scheme}://{www}{bare}" for scheme in ("https", "http") for www in ("", "www.")]


def _on(url: str) -> dict[str, Any]:
    """URLs that are `url` or go on with a slash: as text they lie from `url/` up to `url0`, as `0` follows `/`."""
    below = [{"type": "gte", "key": "uri", "value": f"{url}/"}, {"type": "lt", "key": "uri", "value": f"{url}0"}]
    return _any([{"type": "eq", "key": "uri", "value": url}, {"type": "and", "filters": below}])


def _off(url: str) -> dict[str, Any]:
    beside = [{"type": "lt", "key": "uri", "value": f"{url}/"}, {"type": "gte", "key": "uri", "value": f"{url}0"}]
    return {"type": "and", "filters": [{"type": "ne", "key": "uri", "value": url}, _any(beside)]}
