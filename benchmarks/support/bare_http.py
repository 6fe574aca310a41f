"""Uvicorn that answers every request with the same bytes: `python -m support.bare_http FILE`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.timing import child_environment


@contextmanager
def bare_server(response: bytes, folder: Path) -> Iterator[tuple[str, int]]:
    """Uvicorn that answers every request with `response`; its URL and process id."""
    (folder / "response").write_bytes(response)
    command = [sys.executable, "-m", "support.bare_http", str(folder / "response")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}", child.pid
        finally:
            child.stdin.close()
            child.terminate()


def serve_bare(response: bytes) -> None:
    """Be that server."""
    import socket

    import uvicorn

    length = str(len(response)).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": response})

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2_048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", access_log=False, server_header=False, backlog=2_048
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        serve_bare(Path(sys.argv[1]).read_bytes())
