"""Serve the application with uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing

import uvicorn

from thresher.api.config import Settings
from thresher.api.control.server import ControlSocket
from thresher.api.errors import ConfigError
from thresher.api.http.app import create_app

GRACE_S = 10
"""How long running searches may go on after the server was told to stop."""


def run(settings: Settings, *, only: tuple[str, ...] = (), on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until interrupted. `on_ready` gets the base URL once the socket listens.

    Raises:
        ConfigError: the address cannot be bound, or needs a key.
    """
    app = create_app(settings, only=only)
    control: ControlSocket = app.state.control
    with _listen(settings.host, settings.port) as listener, closing(control):
        control.open()
        host, port = listener.getsockname()[:2]
        if on_ready is not None:
            on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"cannot resolve {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener
