"""Connections to one server, each in a pool of its own.

httpx's pool looks at every connection it has whenever a request begins or ends. With 200 searches at once that costs
7 ms of CPU time a request, more than all the rest of a turn (`benchmarks/load.py`); here it does not grow.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from urllib.request import getproxies, proxy_bypass

import httpx

MOST = 512
"""Connections at once; more requests wait. A process may hold 1,024 files open by default."""


class Connections(httpx.AsyncBaseTransport):
    """A transport that uses the connection again that was used last. For one event loop.

    Args:
        proxy: through which all requests go.
        idle_s: how long a connection is kept that nobody uses.
    """

    def __init__(self, *, proxy: str | None, idle_s: float) -> None:
        self._proxy = proxy
        self._idle_s = idle_s
        self._context = httpx.create_ssl_context()
        self._free: deque[tuple[float, httpx.AsyncHTTPTransport]] = deque()
        self._room = asyncio.Semaphore(MOST)
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a connection that is free, or a new one."""
        await self._room.acquire()
        try:
            transport = self._free.pop()[1] if self._free else self._connect()
        except BaseException:  # a proxy of a kind that is not supported
            self._room.release()
            raise
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            await self._give_back(transport)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Body(response.stream, transport, self)
        return response

    async def aclose(self) -> None:
        """Close the connections that are free now, and the others when they become so."""
        self._closed = True
        while self._free:
            await self._free.pop()[1].aclose()

    def _connect(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=self._idle_s)
        return httpx.AsyncHTTPTransport(verify=self._context, proxy=self._proxy, limits=limits, trust_env=False)

    async def _give_back(self, transport: httpx.AsyncHTTPTransport) -> None:
        self._room.release()
        now = time.monotonic()
        if self._closed:
            await transport.aclose()
            return
        self._free.append((now, transport))
        stale: list[httpx.AsyncHTTPTransport] = []
        while self._free and self._free[0][0] < now - self._idle_s:
            stale.append(self._free.popleft()[1])
        for old in stale:  # others use what is free meanwhile
            await old.aclose()


class _Body(httpx.AsyncByteStream):
    """A response body that gives its connection back when it is closed."""

    def __init__(self, body: httpx.AsyncByteStream, transport: httpx.AsyncHTTPTransport, owner: Connections) -> None:
        self._body = body
        self._transport: httpx.AsyncHTTPTransport | None = transport
        self._owner = owner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield part

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        try:
            await self._body.aclose()
        finally:
            await self._owner._give_back(transport)


def proxy_for(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a host; never one between this process and its own machine."""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    proxies = getproxies()
    found = proxies.get(scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"
