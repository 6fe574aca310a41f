"""Fetching the pages that a search asks for: checked addresses, few at a time, within limits, as sites want it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urljoin, urlsplit
from weakref import WeakValueDictionary

import httpx

from thresher.corpus.ingestion.web.addresses import InvalidAddress
from thresher.corpus.ingestion.web.fetch import Validators, content_type, validators_of
from thresher.corpus.release import release
from thresher.corpus.retries import retry_after
from thresher.corpus.web.connections import GuardedTransport, Resolve, resolve
from thresher.corpus.web.decoding import ACCEPTED, TooLong, decoded
from thresher.corpus.web.guard import Blocked, Guard
from thresher.corpus.web.pages import FetchFailed, WebPage, Why
from thresher.corpus.web.robots import Robots

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_BUSY = frozenset({429, 503})
_CACHED_BYTES = 64 * 1024 * 1024
_CACHED_OVERHEAD = 4_096
"""Bytes that a page takes in the cache beside its body."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one page may take.

    Attributes:
        largest: bytes of a body, decompressed.
        deadline_s: for a page with its redirects, its site's robots.txt and all waiting.
        redirects: followed at most.
        parallel, per_host: requests at the same time, in all and to one host.
        longest_delay_s: a site that wants more time between requests is not read at all.
        fresh_s: how long a page is handed out again without asking; after that it is asked whether it has changed.
    """

    largest: int = 8 * 1024 * 1024
    deadline_s: float = 20.0
    connect_s: float = 5.0
    redirects: int = 5
    parallel: int = 16
    per_host: int = 2
    longest_delay_s: float = 10.0
    fresh_s: float = 600.0


class WebFetcher:
    """Fetches pages, in one event loop. Close it.

    Args:
        guard: what may be connected to.
        robots: whether sites' robots.txt is respected.
        resolve: how host names become addresses.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        limits: FetchLimits | None = None,
        *,
        robots: bool = True,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard or Guard()
        self._limits = limits or FetchLimits()
        self._clock = clock
        headers = {
            "User-Agent": user_agent(),
            "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,text/*;q=0.9,*/*;q=0.5",
            "Accept-Encoding": ACCEPTED,
        }
        transport = GuardedTransport(self._guard, resolve=resolve, connections=self._limits.parallel)
        self._client = httpx.AsyncClient(
            headers=headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # nobody is to be known again
            transport=transport,
            follow_redirects=False,
            trust_env=False,
        )
        self._robots = Robots(self._robots_txt) if robots else None
        self._all = asyncio.Semaphore(self._limits.parallel)
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._next: dict[str, float] = {}
        self._cache: OrderedDict[str, tuple[float, WebPage]] = OrderedDict()

    async def fetch(self, url: str) -> WebPage:
        """The page at an address.

        Raises:
            FetchFailed: there is none to be had; says why.
        """
        limits = self._limits
        try:
            asked = self._guard.check_url(url)
        except Blocked as error:
            raise FetchFailed(url, Why.BLOCKED, str(error)) from error
        except InvalidAddress as error:
            raise FetchFailed(url, Why.REFUSED, str(error)) from error
        kept = self._cache.get(asked)
        if kept is not None and self._clock() - kept[0] <= limits.fresh_s:
            self._cache.move_to_end(asked)
            return kept[1]
        hops = [asked]
        try:
            async with asyncio.timeout(limits.deadline_s):
                page = await self._follow(hops, None if kept is None else kept[1])
        except TimeoutError as error:
            reason = f"no complete answer within {limits.deadline_s:g} s"
            raise FetchFailed(asked, Why.TIMEOUT, reason, hops=tuple(hops)) from error
        except FetchFailed as failed:
            failed.hops = tuple(hops)
            raise
        self._keep(asked, page)
        return page

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _follow(self, hops: list[str], kept: WebPage | None) -> WebPage:
        """The page at the first of `hops`, to which each address is added that redirects lead to."""
        asked = address = hops[0]
        for _ in range(self._limits.redirects + 1):
            answer = await self._ask(address, kept)
            if isinstance(answer, WebPage):
                return replace(answer, asked=asked, hops=tuple(hops))
            try:
                address = self._guard.check_url(urljoin(address, answer))
            except Blocked as error:
                raise FetchFailed(asked, Why.BLOCKED, f"it redirects to {answer[:200]}: {error}") from error
            except ValueError as error:
                raise FetchFailed(asked, Why.REFUSED, f"it redirects to what is no address: {error}") from error
            hops.append(address)
        raise FetchFailed(asked, Why.REFUSED, f"more than {self._limits.redirects} redirects")

    async def _ask(self, address: str, kept: WebPage | None) -> WebPage | str:
        """One page, or where it redirects to."""
        delay = 0.0
        if self._robots is not None:
            rules = await self._robots.rules(address)
            if not rules.allow(address):
                why = "its robots.txt cannot be read" if rules.closed else "its robots.txt asks programs not to read it"
                raise FetchFailed(address, Why.ROBOTS, why)
            delay = rules.delay_s
            if delay > self._limits.longest_delay_s:
                raise FetchFailed(address, Why.ROBOTS, f"its robots.txt asks for {delay:g} s between two requests")
        host = urlsplit(address).netloc
        slots = self._hosts.setdefault(host, asyncio.Semaphore(self._limits.per_host))
        async with slots:
            await self._pace(host, delay)
            # Only now: those who wait for a slow site keep nobody from others.
            async with self._all:
                known = kept.validators if kept is not None and kept.url == address else Validators()
                return await self._request(address, known, kept)

    async def _pace(self, host: str, delay: float) -> None:
        """Wait until a site wants its next request."""
        now = self._clock()
        for site in [site for site, at in self._next.items() if at <= now]:
            del self._next[site]
        at = max(now, self._next.get(host, 0.0))
        if delay > 0:
            self._next[host] = at + delay
        if at > now:
            try:
                await asyncio.sleep(at - now)
            except asyncio.CancelledError:
                if self._next.get(host) == at + delay:  # nobody has queued behind: the turn is free again
                    self._next[host] = at
                raise

    async def _request(self, address: str, known: Validators, kept: WebPage | None) -> WebPage | str:
        headers = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
        headers = {name: value for name, value in headers.items() if value}
        limits = self._limits
        timeout = httpx.Timeout(limits.deadline_s, connect=limits.connect_s)
        try:
            async with self._client.stream("GET", address, headers=headers, timeout=timeout) as response:
                status, location = response.status_code, response.headers.get("location")
                if status in _REDIRECTS and location:
                    return str(location)
                if status == 304 and headers and kept is not None:
                    return replace(kept, fetched_at=time.time())
                if status in _GONE:
                    raise FetchFailed(address, Why.GONE, f"HTTP {status}: there is no such page", status=status)
                if status not in (200, 203):
                    raise FetchFailed(address, Why.REFUSED, _said(response), status=status)
                return await self._body(address, response)
        except Blocked as error:
            raise FetchFailed(address, Why.BLOCKED, str(error)) from error
        except httpx.TimeoutException as error:
            raise FetchFailed(address, Why.TIMEOUT, f"no answer in time ({type(error).__name__})") from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, ValueError) as error:
            what = " ".join(str(error).split())[:200] or type(error).__name__
            raise FetchFailed(address, Why.REFUSED, f"it could not be fetched: {what}") from error

    async def _body(self, address: str, response: httpx.Response) -> WebPage:
        largest = self._limits.largest
        length = response.headers.get("content-length", "")
        too_large = FetchFailed(address, Why.TOO_LARGE, f"it is larger than {largest:,} bytes")
        if length.isascii() and length.isdigit() and int(length[:20]) > largest:
            raise too_large
        try:
            data = await decoded(response.aiter_raw(), response.headers.get("content-encoding", ""), largest)
        except TooLong:
            raise too_large from None
        media_type, charset = content_type(response)
        return WebPage(
            asked=address,
            url=address,
            data=data,
            media_type=media_type,
            charset=charset,
            fetched_at=time.time(),
            validators=validators_of(response),
        )

    async def _robots_txt(self, url: str) -> bytes | None:
        """A robots.txt: b"" if the site says that there is none, None if it cannot be told."""
        address = url
        try:
            # Half of what a page may take: a site that keeps this waiting is known for it before the page is given up.
            async with asyncio.timeout(self._limits.deadline_s / 2):
                for _ in range(self._limits.redirects + 1):
                    answer = await self._request(address, Validators(), None)
                    if isinstance(answer, WebPage):
                        return answer.data or b"\n"
                    address = self._guard.check_url(urljoin(address, answer))
        except FetchFailed as failed:
            # "Unavailable" (4xx) means that all may be read, "unreachable" (5xx, no answer) that nothing may; a site
            # that has just been asked too often is the latter.
            unavailable = failed.status is not None and 400 <= failed.status < 500 and failed.status not in _BUSY
            return b"" if unavailable else None
        except (Blocked, ValueError, TimeoutError):
            return None
        return b""

    def _keep(self, asked: str, page: WebPage) -> None:
        self._cache[asked] = (self._clock(), page)
        self._cache.move_to_end(asked)
        size = sum(len(page.data) + _CACHED_OVERHEAD for _, page in self._cache.values())
        while size > _CACHED_BYTES and len(self._cache) > 1:
            size -= len(self._cache.popitem(last=False)[1][1].data) + _CACHED_OVERHEAD


def user_agent() -> str:
    """What servers are told: the program and its version, nothing else."""
    return f"thresher/{release()} (fetches single pages for a search; respects robots.txt)"


def _said(response: httpx.Response) -> str:
    said = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    asked = retry_after(response) if response.status_code in _BUSY else None
    return said if asked is None else f"{said}, to be asked again in {asked:.0f} s"
