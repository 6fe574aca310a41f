"""Putting the MCP server into the HTTP application, if the SDK is installed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from starlette.routing import Route

from thresher.api.mcp import INSTALL, installed

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from fastapi import FastAPI

    from thresher.api.http.parts import Parts
    from thresher.api.mcp.local import LocalDoor
    from thresher.api.mcp.web import WebDoor

logger = logging.getLogger("thresher.api")

PATH = "/mcp"


class Mounted(Protocol):
    """The MCP server of an application."""

    def open(self) -> None:
        """Let stdio clients of this user in too, from the start of the application on."""
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Answer, within the block."""
        ...


def mount(app: FastAPI, parts: Parts) -> Mounted:
    """Add the route `/mcp`. Without the SDK there is none, which the log says when the application starts."""
    if not installed():
        return _Missing()
    from thresher.api.mcp.desk import Desk
    from thresher.api.mcp.local import LocalDoor
    from thresher.api.mcp.server import make_server
    from thresher.api.mcp.web import WebDoor

    server = make_server(Desk(parts.settings, parts.registry, parts.searches))
    web = WebDoor(server, max_body_bytes=parts.settings.max_body_bytes)
    # A plain route: a mount would answer `/mcp` with a redirection.
    app.router.routes.append(Route(PATH, web, include_in_schema=False))
    return _Both(web, LocalDoor(server, parts.registry))


class _Both:
    def __init__(self, web: WebDoor, local: LocalDoor) -> None:
        self._web = web
        self._local = local

    def open(self) -> None:
        self._local.open()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with self._web.run(), self._local.run():
            yield


class _Missing:
    def open(self) -> None:
        pass

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        logger.info("there is no %s: %s", PATH, INSTALL)
        yield
