"""Providers that are asked over HTTP: what differs between them is how a question is put and how an answer is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import httpx

from thresher.corpus.retries import retry_after
from thresher.corpus.web.providers.base import CouldNotSearch, Trouble, WebHit

TIMEOUT_S = 15.0
LARGEST = 4 * 1024 * 1024
_TAG = re.compile(r"<[^<>]{1,200}>")
_SNIPPET = 2_000
_TITLE = 300


@dataclass(frozen=True, slots=True)
class Question:
    """One request: `params` go into the address, `body` as JSON; with a body it is a POST."""

    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


Put = Callable[[str, int], Question]
"""Puts (query, how many results) as a request."""
Read = Callable[[Mapping[str, Any]], list[WebHit]]
"""Reads an answer. Raises `Unread`, `KeyError` or `TypeError` where it is not of the known shape."""


class Unread(Exception):
    """The provider says in a good answer that it could not search."""


@dataclass(frozen=True, slots=True)
class Api:
    """How one provider is asked.

    Attributes:
        key_names: environment variables that people keep its key in, for messages.
    """

    name: str
    put: Put
    read: Read
    key_names: tuple[str, ...] = ()
    longest_query: int = 2_000
    most_results: int = 20
    parallel: int = 4
    per_minute: int | None = None


class HttpProvider:
    """Asks a provider. `key` is never shown."""

    def __init__(self, api: Api, *, key: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.name = api.name
        self.longest_query = api.longest_query
        self.most_results = api.most_results
        self.parallel = api.parallel
        self.per_minute = api.per_minute
        self._api = api
        self._key = key
        self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=False)

    def __repr__(self) -> str:
        return f"HttpProvider({self.name!r})"

    async def search(self, query: str, limit: int) -> list[WebHit]:
        """As `Provider.search`."""
        question = self._api.put(query, min(limit, self.most_results))
        content = await self._answer(question)
        try:
            answer = json.loads(content)
            hits = self._api.read(answer)
        except Unread as error:
            raise self._trouble(Trouble.UNAVAILABLE, str(error)) from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._trouble(
                Trouble.UNREADABLE, f"its answer is not of the known shape ({type(error).__name__})"
            ) from error
        return [hit for hit in hits if hit.url.lower().startswith(("http://", "https://"))][:limit]

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def _answer(self, question: Question) -> bytes:
        method = "GET" if question.body is None else "POST"
        try:
            async with self._client.stream(
                method, question.url, params=dict(question.params), headers=dict(question.headers), json=question.body
            ) as response:
                content = b""
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > LARGEST:
                        raise self._trouble(Trouble.UNREADABLE, f"its answer is longer than {LARGEST:,} bytes")
        except httpx.TimeoutException as error:
            raise self._trouble(Trouble.TIMEOUT, "it did not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            what = f"it cannot be reached ({type(error).__name__}: {error})"
            raise self._trouble(Trouble.UNAVAILABLE, what) from error
        if response.status_code != 200:
            raise self._refused(response, content)
        return content

    def _refused(self, response: httpx.Response, content: bytes) -> CouldNotSearch:
        status = response.status_code
        said = f"HTTP {status}" + (f" ({words})" if (words := _words(content)) else "")
        if status in (202, 429):  # DuckDuckGo and some proxies say 202 to programs that ask too often
            return self._trouble(Trouble.RATE_LIMITED, f"it was asked too often, {said}", retry_after(response))
        if status in (401, 402, 403):
            advice = f"; check the key in {' or '.join(self._api.key_names)}" if self._api.key_names else ""
            return self._trouble(Trouble.REFUSED, said + advice)
        if status >= 500:
            return self._trouble(Trouble.UNAVAILABLE, said, retry_after(response))
        return self._trouble(Trouble.REFUSED, said)

    def _trouble(self, trouble: Trouble, reason: str, retry_after_s: float | None = None) -> CouldNotSearch:
        if self._key:
            reason = reason.replace(self._key, "***")
        return CouldNotSearch(self.name, trouble, reason, retry_after_s=retry_after_s)


def hit(url: Any, title: Any, snippet: Any = "", published: Any = "") -> WebHit:
    """A hit of what a provider wrote: markup and entities become plain text.

    Raises:
        TypeError: there is no address.
    """
    if not isinstance(url, str) or not url:
        raise TypeError("a result without an address")
    return WebHit(url.strip(), plain(title)[:_TITLE] or url.strip(), plain(snippet)[:_SNIPPET], plain(published)[:40])


def plain(value: Any) -> str:
    """Text without tags and entities, on one line; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    whole = value.encode("utf-8", "replace").decode()  # JSON can spell halves of characters
    return " ".join(unescape(_TAG.sub("", whole)).split())


def _words(content: bytes) -> str:
    """What a refusal says, in the shapes that providers use."""
    try:
        value = json.loads(content[:20_000])
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "detail", "message"):
        found = value.get(name) if isinstance(value, dict) else None
        if isinstance(found, dict):
            found = next((found[key] for key in ("message", "detail", "error", "code") if key in found), None)
        if isinstance(found, str):
            return plain(found)[:200]
    return ""
