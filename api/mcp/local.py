"""A unix socket for the stdio clients of this user: how `thresher mcp` uses a process that has the collections open.

The same files announce it as announce the control socket (`thresher.api.control.rundir`). The client says in a line
who it is and what it wants, is answered in a line, and then both speak JSON-RPC in lines, as stdio clients do.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server

from thresher.api.control.peers import same_user
from thresher.api.control.rundir import RunFile
from thresher.api.mcp.calling import KIND, LONGEST_LINE, PROTOCOL, Hello
from thresher.api.mcp.desk import Asker
from thresher.api.service.principal import LOCAL

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

    from thresher.api.service.registry import Registry

logger = logging.getLogger("thresher.api")


class LocalDoor:
    """Announced from `open` on, answers within `run`, gone at its end."""

    def __init__(self, server: Server[Asker | None], registry: Registry) -> None:
        self._server = server
        self._registry = registry
        self._run_file: RunFile | None = None
        self._clients: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen. A socket that cannot be made is no reason not to serve: it is logged."""
        try:
            self._run_file = RunFile(version("thresher"), KIND)
        except OSError as error:
            logger.warning("`thresher mcp` beside this server will be refused: its socket cannot be made (%s)", error)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Answer, if the socket was opened; clients are hung up on at the end, and the socket is taken away."""
        if self._run_file is None:
            yield
            return
        listening = await asyncio.start_unix_server(self._accept, sock=self._run_file.socket, limit=LONGEST_LINE)
        try:
            yield
        finally:
            listening.close()
            for client in list(self._clients):
                client.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self._run_file.close()
            self._run_file = None

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._clients)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if same_user(writer.get_extra_info("socket")):
                await self._serve(reader, writer)
        except Exception as error:
            logger.warning("the connection of a stdio client broke: %s", error)
        finally:
            self._clients.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = Hello.model_validate_json(await reader.readline())
        refusal = self._refusal(hello)
        writer.write(json.dumps({"refused": refusal}).encode() + b"\n")
        await writer.drain()
        if refusal is None:
            await serve_streams(self._server, Asker(LOCAL, hello.collections), reader, writer)

    def _refusal(self, hello: Hello) -> str | None:
        """Why this client is not for this server; None if it is."""
        ours = version("thresher")
        if (hello.protocol, hello.version) != (PROTOCOL, ours):
            return f"it is thresher {ours} and you are {hello.version}: restart it"
        if strange := [name for name in hello.wanted if not self._registry.serves(name)]:
            return f"it does not serve {', '.join(strange)}"
        return None


async def serve_streams(
    server: Server[Asker | None], asker: Asker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Speak with one client until it hangs up; what it still waits for is then cancelled."""
    lines, out = cast("Any", _Lines(reader)), cast("Any", _Out(writer))
    async with stdio_server(lines, out) as (read, write):
        await serve_dual_era_loop(server, read, write, lifespan_state=asker)


class _Lines:
    """A stream's lines, as the SDK reads a text file's."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):  # hung up, or a line longer than the limit
            line = b""
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


class _Out:
    """A stream, as the SDK writes a text file."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        with suppress(OSError):
            await self._writer.drain()
