"""The page of runs on a port of this machine: made anew for each look, with a page for each rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOSTS = ("localhost", "127.0.0.1")
"""Names under which it may be asked for, so that no other site can have a browser read it under a name of its own."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def runs_app(page: Callable[[], str], rollout: Callable[[str, int], str | None]) -> Starlette:
    """The application.

    Args:
        page: makes the page.
        rollout: makes the page of a rollout, by the key of its run and its line; None where there is none.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def runs(request: Request) -> Response:
        return HTMLResponse(page(), headers=HEADERS)

    def one(request: Request) -> Response:
        made = rollout(request.path_params["run"], request.path_params["line"])
        if made is None:
            return PlainTextResponse("there is no such rollout", 404, headers=HEADERS)
        return HTMLResponse(made, headers=HEADERS)

    routes = [Route("/", runs), Route("/rollouts/{run}/{line:int}", one)]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))])


def serve(app: Starlette, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve on loopback until Ctrl-C.

    Raises:
        OSError: the port is taken.
    """
    import socket

    import uvicorn

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        on_ready(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        server.run(sockets=[listener])
