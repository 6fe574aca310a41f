"""A real server in a thread of the test's own process, so that the test can give it a policy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from thresher.api.config import Settings
from thresher.api.http import create_app


@contextmanager
def live_server(*, policy: Any = None, port: int = 0, grace_s: int = 2, **settings: Any) -> Iterator[str]:
    """Serve; the base URL. What `settings` leaves out is as tests want it.

    `grace_s` is how long it waits for open connections at its end.
    """
    app = create_app(
        Settings(**{"collection": "harbour", "chroma": "in-process", "embedder": "wordllama", **settings}),
        policy=policy,
    )
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="warning", server_header=False, timeout_graceful_shutdown=grace_s)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
