"""Errors as each client reads them: what it looks for is put beside the one shape, which is always there.

- Tavily's reads `detail.error`, and only of 400, 401, 403, 429, 432 and 433; so 404 and 422 are 400 there.
- Cohere's callers read `message`.
- OpenAI's and Perplexity's read the shape as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TAVILY_PATHS = frozenset({"/tavily/search", "/tavily/extract", "/search", "/extract"})
_COHERE = frozenset({"/v1/rerank", "/v2/rerank"})
_PERPLEXITY = re.compile(r"(?:Async)?Perplexity/")

Dialect = Callable[[dict[str, Any]], dict[str, Any]]
"""From the error to the fields that stand beside it."""


def from_perplexity(user_agent: str | None) -> bool:
    """Whether a request comes from Perplexity's SDK."""
    return user_agent is not None and _PERPLEXITY.match(user_agent) is not None


class Dialects:
    """ASGI middleware around everything that can fail, the guard included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        dialect = _dialect(scope) if scope["type"] == "http" else None
        await self._app(scope, receive, send if dialect is None else _Translated(send, dialect))


def _dialect(scope: Scope) -> Dialect | None:
    path = scope["path"]
    if path in _COHERE:
        return lambda error: {"message": error["message"]}
    if path in TAVILY_PATHS and not (path == "/search" and from_perplexity(Headers(scope=scope).get("user-agent"))):
        return lambda error: {"detail": {"error": error["message"]}}
    return None


class _Translated:
    """Sends a response on; a failed one, which is short, when it is whole."""

    def __init__(self, send: Send, dialect: Dialect) -> None:
        self._send = send
        self._dialect = dialect
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
        elif self._start is None:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        try:
            document = json.loads(self._body)
            beside = self._dialect(document["error"])
        except (ValueError, KeyError, TypeError):  # not one of ours
            body = self._body
        else:
            body = json.dumps({**document, **beside}).encode()
            if "detail" in beside and start["status"] in (404, 422):
                start = {**start, "status": 400}
        MutableHeaders(scope=start)["Content-Length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
