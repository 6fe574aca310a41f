"""What a client can do to a server that has not even read its key."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from thresher.api.http import wire

HEAD = b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
PIECE = b"x" * 16_384


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    answer = f"{size} bytes".encode()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def connection() -> AsyncIterator[SimpleNamespace]:
    """A client's end of one connection to such a server."""
    config = uvicorn.Config(_echo, lifespan="off", log_config=None)
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(lambda: wire.BoundedHttp(config, ServerState(), {}), sock=theirs)
    reader, writer = await asyncio.open_connection(sock=ours)
    yield SimpleNamespace(reader=reader, writer=writer, protocol=protocol)
    writer.close()
    transport.close()


async def sent_without_end(client: SimpleNamespace, begin: bytes, piece: bytes, most: int) -> int:
    """How many bytes the server took before it hung up; `most` if it did not."""
    sent = 0
    client.writer.write(begin)
    try:
        while sent < most:
            client.writer.write(piece)
            await client.writer.drain()
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /", PIECE),
        (HEAD + b"Cookie: ", PIECE),
        (HEAD, b"a: b\r\n" * 2_000),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"a: b\r\n" * 2_000),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", PIECE),
    ],
    ids=["line", "header", "headers", "trailers", "extension"],
)
async def test_a_request_that_never_gets_to_its_end_is_cut_off(begin: bytes, piece: bytes) -> None:
    async with connection() as client:
        assert await asyncio.wait_for(sent_without_end(client, begin, piece, 8_000_000), 30) < 4_000_000


async def test_a_head_that_is_too_long_is_told_so() -> None:
    async with connection() as client:
        client.protocol.data_received(HEAD + b"Cookie: ")
        for _ in range(4):
            client.protocol.data_received(PIECE)
        assert not client.protocol.transport.is_closing()
        client.protocol.data_received(PIECE)
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 400 ")


async def test_long_bodies_and_requests_behind_each_other_are_no_heads() -> None:
    async with connection() as client:
        for size in (1_000_000, 3):
            head = HEAD + b"Cookie: " + b"c" * 30_000 + b"\r\nContent-Length: %d\r\n\r\n" % size
            client.writer.write(head[:100])
            await client.writer.drain()
            client.writer.write(head[100:] + b"x" * size + HEAD)  # and the next one begins
            await client.writer.drain()
            answer = await client.reader.readuntil(b" bytes")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"%d bytes" % size)
            client.writer.write(b"Content-Length: 0\r\n\r\n")
            assert (await client.reader.readuntil(b" bytes")).endswith(b"\r\n0 bytes")


@pytest.mark.parametrize("begin", [b"", HEAD])
async def test_a_client_that_does_not_ask_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(wire, "HEAD_S", 0.05)
    async with connection() as client:
        client.writer.write(begin)
        assert await asyncio.wait_for(client.reader.read(), 30) == b""


async def test_a_late_head_does_not_cut_off_the_answer_before_it() -> None:
    async with connection() as client:
        client.writer.write(HEAD + b"Content-Length: 0\r\n\r\n")
        assert (await client.reader.readuntil(b" bytes")).endswith(b"\r\n0 bytes")
        protocol = client.protocol
        protocol.cycle.response_complete = False  # as if it were still being sent
        protocol.data_received(HEAD)
        protocol._late()
        assert not protocol.transport.is_closing()
        protocol.cycle.response_complete = True
        protocol._late()
        assert await asyncio.wait_for(client.reader.read(), 30) == b""
