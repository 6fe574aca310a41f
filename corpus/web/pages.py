"""A page as it was fetched, and why one was not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.web.fetch import Validators


@dataclass(frozen=True, slots=True)
class WebPage:
    """A body.

    Attributes:
        asked: the canonical address that was asked for.
        url: where it is, after all redirects.
        data: the body, decompressed.
        media_type: in lower case, without parameters; empty if the server names none.
        charset: as the header names it; may be empty or wrong.
        fetched_at: seconds since the epoch.
        hops: the addresses on the way, `asked` first and `url` last.
    """

    asked: str
    url: str
    data: bytes
    media_type: str
    charset: str
    fetched_at: float
    validators: Validators = field(default_factory=Validators)
    hops: tuple[str, ...] = ()


class Why(StrEnum):
    """Why a page was not fetched."""

    BLOCKED = "blocked"
    """Its address is not one of the public web; nothing was sent."""
    ROBOTS = "robots"
    """Its site asks programs not to read it."""
    GONE = "gone"
    """There is no such page."""
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    """The server, or the way to it, gave no page."""
    TIMEOUT = "timeout"
    NOT_TEXT = "not_text"
    """It holds no text that could be read."""


class FetchFailed(CorpusError):
    """A page was not fetched.

    Attributes:
        url: the address, canonical where it has such a form.
        why: what kind of failure that is.
        reason: the same in words, without the address.
        status: what the server answered, if it did.
        hops: addresses that were asked, in order.
    """

    code = "fetch_failed"

    def __init__(
        self, url: str, why: Why, reason: str, *, status: int | None = None, hops: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.why = why
        self.reason = reason
        self.status = status
        self.hops = hops
