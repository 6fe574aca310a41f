"""Serve the application with uvicorn, and stop it in order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from types import FrameType

import uvicorn
from pydantic import SecretStr

from thresher.api.config import Settings
from thresher.api.control.server import ControlSocket
from thresher.api.errors import ConfigError
from thresher.api.http.app import create_app
from thresher.api.http.logs import configure_logging
from thresher.api.http.parts import Parts
from thresher.api.http.wire import BoundedHttp
from thresher.api.service.stopping import Stopping

LAST_S = 3
"""How long responses may take to reach their clients once all that ran has ended."""

BACKLOG = 2_048
"""Connections that may wait to be accepted: as many clients may come at once."""


def run(settings: Settings, *, only: tuple[str, ...] = (), on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until told to stop; returns after SIGTERM. `on_ready` gets the base URL once requests are answered.

    The first signal lets searches that run end within the grace, while `/readyz` says so and new ones are refused. A
    second one ends the process at once: what is on disk stands it, as it stands a kill.

    Raises:
        ConfigError: the address cannot be bound, or needs a key.
        KeyboardInterrupt: it was told by SIGINT.
    """
    configure_logging(settings.log_format, settings.log_level, secrets=_secrets(settings))
    app = create_app(settings, only=only)
    parts, control = app.state.parts, app.state.control
    assert isinstance(parts, Parts)
    assert isinstance(control, ControlSocket)
    with _listen(settings.host, settings.port) as listener, closing(control):
        control.open()
        app.state.mcp.open()
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            app,
            http=BoundedHttp,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=LAST_S,
            backlog=BACKLOG,
        )
        heap = Heap(lambda: len(parts.registry.opened()))
        Server(config, parts.stopping, heap, lambda: on_ready(url) if on_ready else None).run(sockets=[listener])


class Heap:
    """Keeps the garbage collector from going through what stays anyhow, which is nearly all that a server has.

    Opening a collection loads packages with some hundred thousand objects. Were they looked at again and again, a
    server with many requests at once would spend half its time on that.
    """

    THRESHOLDS = (10_000, 20, 20)

    def __init__(self, opened: Callable[[], int]) -> None:
        """`opened`: how many collections are open."""
        self._opened = opened
        self._seen = 0
        gc.set_threshold(*self.THRESHOLDS)

    def settle(self) -> None:
        """Where a collection was opened since the last time, count what there is now as what stays."""
        opened = self._opened()
        if opened > self._seen:
            gc.collect()
            gc.freeze()
        self._seen = max(opened, self._seen)


class Server(uvicorn.Server):
    """A server that goes on listening while it winds down, and that a second signal ends at once."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping, heap: Heap, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._heap = heap
        self._stopping = stopping
        self._on_ready = on_ready
        self._told = False
        self._winding_down: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and then say so."""
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come. This runs between any two instructions of the loop's thread: it only takes note."""
        if self._told:
            os._exit(128 + sig)
        self._told = True
        if sig == signal.SIGINT:  # raised again at the end, as Python's own KeyboardInterrupt; SIGTERM ends well
            self._captured_signals.append(sig)
        if not self.started:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """See to it, ten times a second, that what was noted is done."""
        if self._told and self._winding_down is None:
            self._winding_down = asyncio.create_task(self._wind_down())
        if counter % 10 == 0:
            self._heap.settle()
        return await super().on_tick(counter)

    async def _wind_down(self) -> None:
        try:
            await self._stopping.wind_down()
        finally:
            self.should_exit = True


def _secrets(settings: Settings) -> list[str]:
    """What must not be logged, wherever it comes from."""
    given = (getattr(settings, name) for name in type(settings).model_fields)
    return [value.get_secret_value() for value in given if isinstance(value, SecretStr)]


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot resolve {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener
