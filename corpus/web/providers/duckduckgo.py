"""DuckDuckGo and other engines through the package `ddgs`, which needs no key."""

from __future__ import annotations

import asyncio
from typing import Any

from thresher.corpus.errors import CorpusError
from thresher.corpus.web.providers.base import CouldNotSearch, Trouble, WebHit
from thresher.corpus.web.providers.http import hit

TIMEOUT_S = 15


class MissingPackage(CorpusError):
    """An optional package is not installed; the message has the command."""

    code = "missing_package"


class DuckDuckGo:
    """Asks in a thread: the package is synchronous.

    It says "no results" of a page that had none and of one that it was not given alike, so that is never taken for an
    empty web.
    """

    name = "duckduckgo"
    longest_query = 400
    most_results = 20
    parallel = 1
    per_minute: int | None = 20

    def __init__(self, backend: str = "auto") -> None:
        """`backend` is one or more of the package's engines, separated by commas.

        Raises:
            MissingPackage: it is not installed.
        """
        try:
            import ddgs
        except ImportError as error:
            raise MissingPackage("searching by DuckDuckGo needs `pip install thresher[web]`") from error
        self._package: Any = ddgs
        self._backend = backend

    async def search(self, query: str, limit: int) -> list[WebHit]:
        """As `Provider.search`."""
        return await asyncio.to_thread(self._search, query, min(limit, self.most_results))

    async def aclose(self) -> None:
        """Nothing is kept open."""

    def _search(self, query: str, limit: int) -> list[WebHit]:
        from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

        try:
            found = self._package.DDGS(timeout=TIMEOUT_S).text(query, max_results=limit, backend=self._backend)
            hits = [hit(result["href"], result.get("title"), result.get("body")) for result in found or ()]
        except RatelimitException as error:
            raise CouldNotSearch(self.name, Trouble.RATE_LIMITED, "it was asked too often") from error
        except TimeoutException as error:
            raise CouldNotSearch(self.name, Trouble.TIMEOUT, "it did not answer in time") from error
        except (LookupError, TypeError, AttributeError) as error:
            what = f"its answer is not of the known shape ({type(error).__name__})"
            raise CouldNotSearch(self.name, Trouble.UNREADABLE, what) from error
        except DDGSException as error:
            raise CouldNotSearch(self.name, Trouble.UNAVAILABLE, str(error)[:200]) from error
        except Exception as error:
            what = f"{type(error).__name__}: {error}"[:200]
            raise CouldNotSearch(self.name, Trouble.UNAVAILABLE, f"it cannot be reached ({what})") from error
        if not hits:
            raise CouldNotSearch(self.name, Trouble.UNAVAILABLE, "it gave neither results nor a reason")
        return hits
