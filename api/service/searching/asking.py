"""From the body of a search to what the engine is asked, as far as this server allows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from thresher.api.errors import ApiError
from thresher.api.service.searching.bodies import MAX_COLLECTIONS, REQUEST_FIELDS
from thresher.corpus.filters import parse_filter
from thresher.engine.requests import Source

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.service.principal import Principal
    from thresher.api.service.searching.bodies import SearchBody
    from thresher.engine.requests import SearchRequest


def request_of(body: SearchBody, settings: Settings) -> SearchRequest:
    """The body's fields before the server's settings; a field that is null is not given.

    Raises:
        ApiError: 422, a field asks for what this server does not have or allow.
        InvalidRequest: a field is out of range.
        InvalidFilter: `filters` does not follow the grammar.
    """
    sources = _sources(body, settings)
    longest = settings.max_deadline_s
    if body.deadline_s is not None and body.deadline_s > longest:
        message = f"deadline_s is at most {longest:g} on this server, got {body.deadline_s:g}"
        raise ApiError(422, "invalid_field", message, param="deadline_s")
    if body.filters is not None:
        parse_filter(body.filters)
    given = {**{name: getattr(body, name) for name in REQUEST_FIELDS}, "sources": sources}
    request = settings.search_request(body.query, **given)
    return replace(request, deadline_s=min(request.deadline_s or longest, longest))


def collections_of(caller: Principal, asked: list[str] | None, settings: Settings) -> tuple[str, ...]:
    """The plain names of the collections that a request asks, each once; the default one if it names none.

    Raises:
        ApiError: 422, there are none or too many of them, or no collection can have such a name.
    """
    if asked is None:
        return (settings.collection,)
    names = tuple(dict.fromkeys(asked))
    if not 1 <= len(names) <= MAX_COLLECTIONS:
        message = f"collections must name 1 to {MAX_COLLECTIONS} collections, got {len(names)}; or leave it out"
        raise ApiError(422, "invalid_field", message, param="collections")
    for name in names:
        caller.collection(name)
    return names


def _sources(body: SearchBody, settings: Settings) -> tuple[Source, ...] | None:
    """Where to look; None where the body does not say."""
    if body.sources is None:
        return None
    if not body.sources or len(set(body.sources)) != len(body.sources):
        message = 'sources must name "corpus", "web" or both, each once; or leave it out'
        raise ApiError(422, "invalid_field", message, param="sources")
    if "web" in body.sources and not settings.web().configured:
        message = 'no web provider is configured on this server; send sources ["corpus"] or leave it out'
        raise ApiError(422, "unsupported", message, param="sources")
    return tuple(Source(name) for name in body.sources)
