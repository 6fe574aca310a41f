"""`/mcp`: streamable HTTP, behind the guard that all routes are behind.

The guard has seen to keys, Host and Origin. The SDK keeps the sessions; one belongs to the key that began it, and for
any other key there is none of that id. Clients of the newer protocol have no sessions: each request stands alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from thresher.api.service.principal import Principal, Scope
from thresher.api.service.stopping import stopping_error

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from starlette.types import Message, Receive, Send
    from starlette.types import Scope as Request

    from thresher.api.mcp.desk import Asker

MAX_SESSIONS = 10_000
"""Each takes about 35 KB."""

MAX_SESSIONS_OF_TENANT = 1_000
"""So that one tenant's clients, which may forget to end theirs, keep out no other's."""

IDLE_S = 30 * 60.0
"""How long a session lives that nobody uses. Its client then begins another one."""


class WebDoor:
    """ASGI application of the one path, to be used within `run`."""

    def __init__(self, server: Server[Asker | None], *, max_body_bytes: int) -> None:
        self._server = server
        self._max_body_bytes = max_body_bytes
        self._sessions: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep sessions; their calls are cancelled at the end."""
        sessions = _Sessions(
            self._server,
            session_idle_timeout=IDLE_S,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=self._max_body_bytes,
        )
        async with sessions.run():
            self._sessions = sessions
            try:
                yield
            finally:
                self._sessions = None

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            ApiError: 403, the key may not search; 503, outside of `run`.
        """
        principal = scope["state"]["principal"]  # the guard has put it there
        assert isinstance(principal, Principal)
        principal.require(Scope.SEARCH)
        if self._sessions is None:
            raise stopping_error()
        unfinished = False

        async def sent(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        await self._sessions.handle_request({**scope, "user": _user(principal)}, receive, sent)
        if unfinished:  # a stream that the end of the server has cut off
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Sessions(StreamableHTTPSessionManager):
    """The SDK's, whose limit is for all clients together, with one for each tenant."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        tenant = None if requestor is None else requestor["subject"]
        held = sum(owner["subject"] == tenant for owner in self._session_owners.values())
        return super()._admit_session(requestor) if held < MAX_SESSIONS_OF_TENANT else None


def _user(principal: Principal) -> AuthenticatedUser:
    """The caller as the SDK knows callers: it compares them with whoever began a session."""
    scopes = [str(scope) for scope in principal.scopes]
    return AuthenticatedUser(AccessToken(token="", client_id=principal.key_id, subject=principal.tenant, scopes=scopes))
