"""What sites ask of programs in robots.txt (RFC 9309), and how fast they want to be read."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from protego import Protego

AGENT = "thresher"
LIFETIME_S = 3_600.0
UNREACHABLE_S = 300.0
"""How long an answer that was none counts: a site that is down is asked again sooner."""
LARGEST = 512 * 1024
"""Bytes that are read, the least that RFC 9309 asks for."""
_MOST_SITES = 2_000

Read = Callable[[str], Awaitable["bytes | None"]]
"""Reads an address: its body, b"" if the site says that there is none, None if it cannot be told."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What one site asks. Without `parsed` nothing may be read (`closed`), or everything."""

    parsed: Protego | None
    closed: bool
    until: float

    def allow(self, url: str) -> bool:
        """Whether the site lets this program read a page."""
        return not self.closed if self.parsed is None else bool(self.parsed.can_fetch(url, AGENT))

    @property
    def delay_s(self) -> float:
        """Seconds between two requests that the site asks for; 0 for none."""
        delay = None if self.parsed is None else self.parsed.crawl_delay(AGENT)
        return max(0.0, float(delay or 0.0))


class Robots:
    """The rules of sites, each read once an hour."""

    def __init__(self, read: Read, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._known: OrderedDict[str, Rules] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def rules(self, url: str) -> Rules:
        """The rules of the site that a page belongs to."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        async with self._locks.setdefault(site, asyncio.Lock()):
            known = self._known.get(site)
            if known is None or known.until < self._clock():
                known = self._known[site] = await self._ask(site)
            self._known.move_to_end(site)
            while len(self._known) > _MOST_SITES:
                self._known.popitem(last=False)
        return known

    async def _ask(self, site: str) -> Rules:
        body = await self._read(f"{site}/robots.txt")
        if body is None:  # RFC 9309, 2.3.1.4: what cannot be asked is to be taken for a no
            return Rules(None, closed=True, until=self._clock() + UNREACHABLE_S)
        text = body[:LARGEST].decode("utf-8", "replace")
        parsed = await asyncio.to_thread(Protego.parse, text) if body else None
        return Rules(parsed, closed=False, until=self._clock() + LIFETIME_S)
