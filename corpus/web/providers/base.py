"""What a search engine of the web is to this program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from thresher.corpus.errors import CorpusError


@dataclass(frozen=True, slots=True)
class WebHit:
    """One result.

    Attributes:
        snippet: what the provider shows of the page; plain text, not to be cited.
        published: a date as the provider writes it; empty if it says none.
    """

    url: str
    title: str
    snippet: str = ""
    published: str = ""


class Trouble(StrEnum):
    """Why a provider could not search."""

    RATE_LIMITED = "rate_limited"
    REFUSED = "refused"
    """It does not take the request, or the key."""
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    UNREADABLE = "unreadable"
    """What it answered is not what it is known to answer."""


class CouldNotSearch(CorpusError):
    """No provider could be asked. That says nothing of what is to be found.

    Attributes:
        retry_after_s: seconds after which it is worth another try, if that is known.
    """

    code = "web_search_failed"

    def __init__(self, provider: str, trouble: Trouble, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{provider} could not search: {reason}")
        self.provider = provider
        self.trouble = trouble
        self.reason = reason
        self.retry_after_s = retry_after_s


class Provider(Protocol):
    """A search engine.

    Attributes:
        name: as settings and messages call it.
        longest_query: characters that it takes.
        most_results: how many it gives at most.
        parallel: requests at once that it stands.
        per_minute: requests a minute that it allows; None for no limit.
    """

    name: str
    longest_query: int
    most_results: int
    parallel: int
    per_minute: int | None

    async def search(self, query: str, limit: int) -> list[WebHit]:
        """The first results, best first; an empty list only where the provider says that there is nothing.

        Raises:
            CouldNotSearch: it could not be asked, or did not answer the question.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...
