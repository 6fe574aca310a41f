"""A client for HTTP benchmarks that costs little: plain asyncio, keep-alive, a parser for just these responses.

`python -m support.http_client CLIENTS SECONDS` reads {"url", "requests"} from standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit


class Connection(asyncio.Protocol):
    """One keep-alive connection. Understands responses with a Content-Length, and chunked ones."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting is None or self._waiting.done():
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        if b"transfer-encoding: chunked" in head:
            if not self._received.endswith(b"0\r\n\r\n"):
                return
            body = bytes(self._received[end + 4 :])
        else:
            start = head.index(b"content-length:") + 15
            length = int(head[start : head.find(b"\r", start) if b"\r" in head[start:] else len(head)])
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
        self._received.clear()
        self._waiting.set_result((int(head[9:12]), body))

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the status and the body (of a stream: as it came)."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._waiting


def message(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def connect(url: str) -> Connection:
    """A connection to a server."""
    parts = urlsplit(url)
    _, connection = await asyncio.get_running_loop().create_connection(Connection, parts.hostname, parts.port)
    return connection


async def answer(url: str, request: bytes) -> tuple[int, bytes]:
    """One response."""
    connection = await connect(url)
    try:
        return await connection.ask(request)
    finally:
        connection.transport.close()


async def drive(url: str, requests: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """`clients` connections that ask for `seconds`, after a fifth of it to warm up; what is answered by then counts."""
    loop = asyncio.get_running_loop()
    taken: list[float] = []
    sent = 0
    failed: dict[int, int] = {}
    warm = loop.time() + seconds / 5
    end = warm + seconds

    async def one(number: int) -> None:
        nonlocal sent
        connection = await connect(url)
        while (began := loop.time()) < end:
            status, _ = await connection.ask(requests[number % len(requests)])
            number, sent = number + 1, sent + 1
            now = loop.time()
            if warm <= now <= end:
                taken.append(now - began)
                if status != 200:
                    failed[status] = failed.get(status, 0) + 1
        connection.transport.close()

    async def idle() -> float:
        await asyncio.sleep(warm - loop.time())
        return time.process_time()

    before, *_ = await asyncio.gather(idle(), *(one(number) for number in range(clients)))
    cpu = time.process_time() - before
    taken.sort()

    def at(share: float) -> float:
        return round(taken[min(len(taken) - 1, int(share * len(taken)))] * 1e3, 2) if taken else float("nan")

    return {
        "clients": clients,
        "requests": len(taken),
        "sent": sent,
        "failed": failed,
        "per_s": round(len(taken) / seconds, 1),
        "p50_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "client_cpu": round(cpu / seconds, 2),
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    given = [request.encode() for request in asked["requests"]]
    print(json.dumps(asyncio.run(drive(asked["url"], given, int(sys.argv[1]), float(sys.argv[2])))))
