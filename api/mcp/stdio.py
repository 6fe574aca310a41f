"""`thresher mcp`: a pipe between a client's stdin and stdout and whoever has the collections.

That is a running `thresher serve`, or another stdio client's process, if there is one that serves what is wanted; else
this process itself, which then opens collections on first use and closes them when nobody has asked for a while. If
the other end goes away, the next call finds another one: the client notices nothing but the calls that were under way.

Lines are passed on as they are; only ids and methods are looked at.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic_core import from_json

from thresher.api.mcp.calling import LONGEST_LINE, Line, call, servers
from thresher.corpus.paths import collection_path, is_collection

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.control.rundir import Announcement
    from thresher.api.mcp.host import Host

logger = logging.getLogger("thresher.api")

IDLE_S = 60.0
"""How long this process keeps collections that nobody asks for."""

_AGAIN = "thresher-again"
"""The id under which a client's handshake is repeated to another server."""

Write = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True)
class _Upstream:
    """Where the client's lines go now. `host` is ours, if it is this process itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    what: str
    host: Host | None = None

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()
        if self.host is not None:
            await self.host.close()


class Relay:
    """One stdio client, until its stdin ends.

    Args:
        collections: the only ones that the client works with, the first being its default; empty: all.
        lines: what the client says.
        write: sends it a line.
        on_choice: told where calls go, each time that changes; True for a server of ours that runs elsewhere.
    """

    def __init__(
        self,
        settings: Settings,
        collections: Sequence[str],
        lines: AsyncIterator[bytes],
        write: Write,
        *,
        on_choice: Callable[[str, bool], None] = lambda what, elsewhere: None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._settings = settings
        self._collections = tuple(collections)
        self._wanted = self._collections or _there(settings.collection)
        self._lines = lines
        self._write = write
        self._on_choice = on_choice
        self._idle_s = idle_s
        self._upstream: _Upstream | None = None
        self._pump: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._waiting: dict[Any, str] = {}
        self._handshake: list[dict[str, Any]] = []
        self._refused: set[int] = set()
        self._asked = time.monotonic()

    async def run(self) -> None:
        """Pass lines on until the client is gone.

        Raises:
            ConfigError, InvalidRequest, RerankError: this process would have to search itself, and cannot as it is set.
        """
        async with self._changing:
            await self._reached()
        idle = asyncio.create_task(self._give_back())
        try:
            async for line in self._lines:
                await self._take(line)
        finally:
            idle.cancel()
            async with self._changing:
                await self._leave()

    async def _take(self, line: bytes) -> None:
        message = _parsed(line)
        method, asks = message.get("method"), _asks(message)
        async with self._changing:
            self._asked = time.monotonic()
            if asks and (fault := _fault(line, message)) is not None:
                await self._answer(message["id"], str(method), f"this message cannot be read: {fault}")
                return
            try:
                if method == "initialize":
                    self._handshake.clear()
                upstream = await self._reached()
            except Exception as error:
                if asks:
                    await self._answer(message["id"], str(method), _why(error))
                return
            if method in ("initialize", "notifications/initialized"):
                self._handshake.append(message)
            if method == "notifications/cancelled":
                self._waiting.pop(_cancelled(message), None)  # it will not be answered
            if asks:
                self._waiting[message["id"]] = str(method)
            # If it is gone, the pump notices and answers.
            with suppress(OSError):
                upstream.writer.write(line.rstrip(b"\r\n") + b"\n")
                await upstream.writer.drain()

    async def _reached(self) -> _Upstream:
        """Whoever has the collections now."""
        upstream = self._upstream
        if upstream is not None and self._replaceable(upstream) and self._servers():
            await self._leave()  # a server has come up since: it shall have the collections
            upstream = None
        if upstream is None:
            upstream = await self._chosen()
            self._upstream = upstream
            for message in self._handshake:
                await self._repeat(upstream, message)
            self._pump = asyncio.create_task(self._listen(upstream))
        return upstream

    def _replaceable(self, upstream: _Upstream) -> bool:
        """Whether it is this process itself, and nobody would lose anything by its end."""
        return upstream.host is not None and not upstream.host.busy and not self._waiting

    async def _chosen(self) -> _Upstream:
        for server in self._servers():
            found = await call(server, self._collections, self._wanted)
            if isinstance(found, Line):
                what = f"process {found.pid} (which has the collections)"
                self._on_choice(what, True)
                return _Upstream(found.reader, found.writer, what)
            self._refused.add(server.pid)
            logger.warning("process %d cannot be used: %s", server.pid, found)
        from thresher.api.mcp.host import Host

        host = Host(self._settings)
        try:
            await host.open()
            reader, writer = await host.connect(self._collections)
        except BaseException:
            await host.close()
            raise
        self._on_choice("this process", False)
        return _Upstream(reader, writer, "this process", host)

    def _servers(self) -> list[Announcement]:
        return [server for server in servers(self._wanted) if server.pid not in self._refused]

    async def _repeat(self, upstream: _Upstream, message: dict[str, Any]) -> None:
        """Say again what the client said first; the answer is one that it has had."""
        asks = "id" in message
        again = {**message, "id": _AGAIN} if asks else message
        upstream.writer.write(json.dumps(again).encode() + b"\n")
        while asks and (line := await upstream.reader.readline()):
            asks = _parsed(line).get("id") != _AGAIN

    async def _listen(self, upstream: _Upstream) -> None:
        """Pass on what comes back; when nothing more can come, answer what is still waited for."""
        try:
            while line := await upstream.reader.readline():
                message = _parsed(line)
                if "method" not in message and _is_id(message.get("id")):
                    self._waiting.pop(message["id"], None)
                self._asked = time.monotonic()
                await self._write(line)
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be understood: %s", upstream.what, error)
        if self._upstream is upstream:
            self._upstream = None
            logger.warning("%s has ended; the next call finds another one", upstream.what)
            lost, self._waiting = self._waiting, {}
            for request_id, method in lost.items():
                await self._answer(request_id, method, f"{upstream.what} has ended before it answered: call again")
            await upstream.close()

    async def _leave(self) -> None:
        """Have no upstream any more. Whoever calls holds the lock."""
        upstream, self._upstream = self._upstream, None
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None
        if upstream is not None:
            await upstream.close()

    async def _give_back(self) -> None:
        """Close collections that nobody has asked for for a while, so that others can have them."""
        while True:
            await asyncio.sleep(self._idle_s / 4)
            async with self._changing:
                upstream = self._upstream
                idle = time.monotonic() - self._asked > self._idle_s
                if idle and upstream is not None and self._replaceable(upstream):
                    await self._leave()

    async def _answer(self, request_id: Any, method: str, message: str) -> None:
        """Tell the client of a call that nobody else can answer any more."""
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
        if method == "tools/call":
            content = [{"type": "text", "text": message}]
            reply["result"] = {"content": content, "isError": True, "resultType": "complete"}
        else:
            reply["error"] = {"code": -32_000, "message": message}
        await self._write(json.dumps(reply).encode() + b"\n")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _fault(line: bytes, message: dict[str, Any]) -> str | None:
    """Why the other end could not read a request, which it would drop without an answer; None if it can."""
    if len(line) >= LONGEST_LINE:
        return f"it has {len(line):,} bytes, and the limit is {LONGEST_LINE:,}"
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("params") or {}, dict):
        return "it is no request of JSON-RPC 2.0"
    try:
        from_json(line)  # stricter than ours: half of a character beyond the basic plane is none
    except ValueError as error:
        return str(error)
    return None


def _asks(message: dict[str, Any]) -> bool:
    """Whether it is a request, which is owed an answer."""
    return "method" in message and _is_id(message.get("id"))


def _is_id(value: Any) -> TypeGuard[int | str]:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _cancelled(message: dict[str, Any]) -> int | str | None:
    """The id of the request that a notification takes back."""
    params = message.get("params")
    request_id = params.get("requestId") if isinstance(params, dict) else None
    return request_id if _is_id(request_id) else None


def _there(name: str) -> tuple[str, ...]:
    """The default collection, if there is one of that name: else whatever a server has will do."""
    return (name,) if is_collection(collection_path(name)) else ()


def _why(error: Exception) -> str:
    from thresher.api.errors import explain

    problem = explain(error)
    if problem is None:
        logger.exception("the MCP server cannot be started", exc_info=error)
        return f"the MCP server cannot be started ({type(error).__name__}); what it wrote to stderr says more"
    return problem.message
