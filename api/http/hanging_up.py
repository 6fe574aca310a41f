"""Ending searches whose client hangs up before it has its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from fastapi import Request


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


@asynccontextmanager
async def cancelled_with(request: Request, *searches: _Cancellable) -> AsyncIterator[None]:
    """Within the block, end the searches when the client hangs up; at its end they are over or have no listener."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        for search in searches:
            search.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        for search in searches:
            search.cancel()
