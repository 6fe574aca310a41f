"""The parts of a server in a process that only stdio clients use: the searches and the collections, and no HTTP."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from thresher.api.control.server import ControlSocket
from thresher.api.mcp.calling import LONGEST_LINE
from thresher.api.mcp.desk import Asker, Desk
from thresher.api.mcp.local import LocalDoor, serve_streams
from thresher.api.mcp.server import make_server
from thresher.api.opening import Opener
from thresher.api.policies import close_policy
from thresher.api.service.database import Database, server_database
from thresher.api.service.registry import Registry
from thresher.api.service.searching.searches import Searches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.api.config import Settings

GRACE_S = 1.0
"""How long searches may go on when the client is gone: it kills what does not end soon."""


class Host:
    """Opens collections when they are first used and has them until `close`.

    Like a server it lets others in meanwhile: commands by the control socket, further stdio clients by the MCP socket.
    """

    def __init__(self, settings: Settings) -> None:
        """Make it, from settings.

        Raises:
            ConfigError, InvalidRequest, RerankError: as `create_app`.
        """
        settings = settings.model_copy(update={"collection": settings.collection.rpartition("/")[2]})
        choice = settings.policy_choice()
        self._factory = choice.make(settings.model_api_key)
        self._registry = Registry(
            self._factory,
            opener=Opener(settings.chroma_spec(serving=False)),
            ranking=settings.ranking(),
            profile=choice.engine_profile(self._factory),
            model_key=settings.model_api_key,
        )
        self._database = Database(server_database())
        self._searches = Searches(settings, self._registry, self._database)
        self._server = make_server(Desk(settings, self._registry, self._searches))
        self._control = ControlSocket(self._registry)
        self._door = LocalDoor(self._server, self._registry)
        self._stack = AsyncExitStack()
        self._serving: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something goes on here that its own client does not wait for."""
        return bool(self._searches.active or self._door.clients or self._control.busy)

    async def open(self) -> None:
        """Begin: announce it to other commands and clients."""
        self._control.open()
        self._door.open()
        await self._searches.open()
        await self._stack.enter_async_context(self._door.run())

    async def connect(self, collections: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection for this process's own client."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=theirs, limit=LONGEST_LINE)
        asker = Asker(collections=tuple(collections))
        self._serving = asyncio.create_task(self._serve(asker, reader, writer))
        return await asyncio.open_unix_connection(sock=ours, limit=LONGEST_LINE)

    async def close(self) -> None:
        """End what runs, give the collections back, and take the sockets away."""
        await self._searches.close(GRACE_S)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        await self._stack.aclose()
        await close_policy(self._factory)
        await asyncio.to_thread(self._control.close)
        await asyncio.to_thread(self._registry.close)
        self._database.close()

    async def _serve(self, asker: Asker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve_streams(self._server, asker, reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
