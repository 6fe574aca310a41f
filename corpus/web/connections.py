"""Connections that go only to addresses that were checked."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpcore
import httpx

from thresher.corpus.web.guard import IP, Guard

Resolve = Callable[[str, int], Awaitable[list[IP]]]
"""The addresses that a host stands for, in order of preference. Raises `OSError` where it stands for none."""


_LOOKUPS = ThreadPoolExecutor(32, thread_name_prefix="thresher-resolve")
"""Threads of their own: a name server that keeps them waiting keeps no other work of the process waiting."""


async def resolve(host: str, port: int) -> list[IP]:
    """As the system resolves it, which also reads every spelling of an address (`127.1`, `0x7f000001`)."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves, checks, and connects to an address that passed: the name is not asked for a second time."""

    def __init__(self, guard: Guard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} could not be resolved in time") from error
        except (OSError, UnicodeError, ValueError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        # All of them: a name that stands for a public and a private address is not trusted with the public one either.
        for address in addresses:
            self._guard.check_address(address, host, port)
        failure: httpcore.NetworkError | httpcore.TimeoutException | None = None
        for address in addresses:
            try:
                return await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.NetworkError, httpcore.TimeoutException) as error:
                failure = error
        raise failure or httpcore.ConnectError(f"{host} has no address")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("there are no unix sockets on the web")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class GuardedTransport(httpx.AsyncHTTPTransport):
    """httpx's transport, over connections to checked addresses only. Proxies of the environment are not used:
    where a request really ends would be the proxy's to decide.

    Raises `Blocked` from a request whose host stands for an address that must not be connected to.
    """

    def __init__(self, guard: Guard, *, resolve: Resolve = resolve, connections: int = 32) -> None:
        context = httpx.create_ssl_context()
        super().__init__(verify=context, trust_env=False)
        # httpx has no argument for the backend of its pool.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=5.0,
            network_backend=_GuardedBackend(guard, resolve),
        )
