"""The search engines that people have keys for, and a generic one: how each is asked and read.

Facts of their public documentation, November 2026; the limits are those of their smallest plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thresher.corpus.web.providers.base import WebHit
from thresher.corpus.web.providers.http import Api, Question, Unread, hit

BRAVE_KEYS = ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")
TAVILY_KEYS = ("TAVILY_API_KEY",)
EXA_KEYS = ("EXA_API_KEY",)
SERPER_KEYS = ("SERPER_API_KEY",)
"""Environment variables that people keep these keys in, the first that is set counts."""


def searxng(base: str) -> Api:
    """A SearXNG of one's own, whose settings must allow `format=json`."""

    def put(query: str, limit: int) -> Question:
        return Question(f"{base.rstrip('/')}/search", {"q": query, "format": "json", "pageno": 1})

    def read(answer: Mapping[str, Any]) -> list[WebHit]:
        results = answer["results"]
        down = answer.get("unresponsive_engines") or ()
        if not results and down:
            names = ", ".join(": ".join(map(str, entry)) if isinstance(entry, list) else str(entry) for entry in down)
            raise Unread(f"none of its engines answered ({names[:200]})")
        return [hit(r["url"], r.get("title"), r.get("content"), r.get("publishedDate")) for r in results]

    return Api("searxng", put, read, most_results=50, parallel=4)


def brave(key: str) -> Api:
    """Brave Search."""

    def put(query: str, limit: int) -> Question:
        return Question(
            "https://api.search.brave.com/res/v1/web/search",
            {"q": query, "count": limit, "text_decorations": "false"},
            {"X-Subscription-Token": key, "Accept": "application/json"},
        )

    def read(answer: Mapping[str, Any]) -> list[WebHit]:
        if "web" not in answer and "query" not in answer:
            raise KeyError("web")
        results = (answer.get("web") or {}).get("results") or ()
        return [hit(r["url"], r.get("title"), r.get("description"), r.get("page_age")) for r in results]

    return Api("brave", put, read, BRAVE_KEYS, longest_query=400, most_results=20, parallel=1, per_minute=60)


def tavily(key: str) -> Api:
    """Tavily."""

    def put(query: str, limit: int) -> Question:
        body = {"query": query, "max_results": limit, "search_depth": "basic"}
        return Question("https://api.tavily.com/search", headers={"Authorization": f"Bearer {key}"}, body=body)

    def read(answer: Mapping[str, Any]) -> list[WebHit]:
        return [hit(r["url"], r.get("title"), r.get("content"), r.get("published_date")) for r in answer["results"]]

    return Api("tavily", put, read, TAVILY_KEYS, longest_query=400, most_results=20, per_minute=100)


def exa(key: str) -> Api:
    """Exa."""

    def put(query: str, limit: int) -> Question:
        body = {"query": query, "numResults": limit, "contents": {"highlights": True}}
        return Question("https://api.exa.ai/search", headers={"x-api-key": key}, body=body)

    def read(answer: Mapping[str, Any]) -> list[WebHit]:
        return [
            hit(r["url"], r.get("title"), " … ".join(r.get("highlights") or ()), r.get("publishedDate"))
            for r in answer["results"]
        ]

    return Api("exa", put, read, EXA_KEYS, most_results=25, per_minute=300)


def serper(key: str) -> Api:
    """Serper, which asks Google."""

    def put(query: str, limit: int) -> Question:
        return Question("https://google.serper.dev/search", headers={"X-API-KEY": key}, body={"q": query, "num": limit})

    def read(answer: Mapping[str, Any]) -> list[WebHit]:
        return [hit(r["link"], r.get("title"), r.get("snippet"), r.get("date")) for r in answer["organic"]]

    return Api("serper", put, read, SERPER_KEYS, per_minute=300)


def generic(
    url: str,
    *,
    results: str = "results",
    fields: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Api:
    """Any engine that answers JSON.

    Args:
        url: with `{query}` and `{limit}` in it, or without where `body` has them.
        results: where the list is, with dots between the names of objects; "" where the answer itself is the list.
        fields: names of `url`, `title`, `snippet` and `published` in a result, where they are others; dots as above.
        body: sent as JSON; strings in it may be `{query}` and `{limit}`.
    """
    names = {"url": "url", "title": "title", "snippet": "snippet", "published": "published", **(fields or {})}

    def put(query: str, limit: int) -> Question:
        if body is not None:
            filled = {name: _filled(value, query, limit) for name, value in body.items()}
            return Question(url, headers=dict(headers or {}), body=filled)
        bare, _, asked = url.partition("?")
        pairs = (pair.partition("=") for pair in asked.split("&") if pair)
        params = {name: str(_filled(value, query, limit)) for name, _, value in pairs}
        return Question(bare, params, dict(headers or {}))

    def read(answer: Any) -> list[WebHit]:
        found = _at(answer, results)
        if not isinstance(found, list):
            raise TypeError("no list of results")
        optional = ("title", "snippet", "published")
        return [hit(_at(r, names["url"]), *(_or_none(r, names[name]) for name in optional)) for r in found]

    return Api("generic", put, read)


def _filled(value: Any, query: str, limit: int) -> Any:
    if value == "{limit}":
        return limit
    return value.replace("{query}", query).replace("{limit}", str(limit)) if isinstance(value, str) else value


def _at(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        value = value[int(name)] if isinstance(value, list) and name.isdigit() else value[name]
    return value


def _or_none(value: Any, path: str) -> Any:
    try:
        return _at(value, path)
    except (KeyError, IndexError, TypeError):
        return None
