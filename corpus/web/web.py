"""The web as a search sees it: questions and pages, from the real web or from a recording of it."""

from __future__ import annotations

from typing import Protocol

from thresher.corpus.web.fetching import WebFetcher
from thresher.corpus.web.pages import WebPage
from thresher.corpus.web.search import WebResults, WebSearch


class Web(Protocol):
    """What is asked of the web. All traffic of a search goes through one of these."""

    async def search(self, query: str, limit: int) -> WebResults:
        """The first results for a question.

        Raises:
            InvalidQuery: there is nothing in it to search for.
            CouldNotSearch: no provider could be asked.
        """
        ...

    async def fetch(self, url: str) -> WebPage:
        """The page at an address.

        Raises:
            FetchFailed: there is none to be had.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class LiveWeb:
    """Providers, and a fetcher for what they name."""

    def __init__(self, search: WebSearch, fetcher: WebFetcher) -> None:
        self._search = search
        self._fetcher = fetcher

    async def search(self, query: str, limit: int) -> WebResults:
        """As `Web.search`."""
        return await self._search.search(query, limit)

    async def fetch(self, url: str) -> WebPage:
        """As `Web.fetch`."""
        return await self._fetcher.fetch(url)

    async def aclose(self) -> None:
        """As `Web.aclose`."""
        await self._search.aclose()
        await self._fetcher.aclose()
