"""The outermost layer: request ids, host and key checks, the body limit, and the last catch for errors."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import uuid

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thresher.api.errors import ConfigError, Problem
from thresher.api.http.errors import INTERNAL, error_response
from thresher.api.service.principal import LOCAL

logger = logging.getLogger("thresher.api")

OPEN_PATHS = frozenset({"/healthz"})
"""Paths that need no key: a load balancer has none."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def is_loopback(host: str) -> bool:
    """Whether a bind address or host name can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def usable_key(api_key: str | None) -> str | None:
    """The key as clients send it; None where there is none, and a blank one is none."""
    return (api_key or "").strip() or None


def check_bind(host: str, api_key: str | None) -> None:
    """Refuse to serve the network without a key.

    Raises:
        ConfigError: `host` is not a loopback address and there is no key, or a blank one.
    """
    if not usable_key(api_key) and not is_loopback(host):
        raise ConfigError(
            f"refusing to serve on {host} without a key: anyone who reaches it could read every collection; "
            "set THRESHER_API_KEY, or bind 127.0.0.1"
        )


class Guard:
    """ASGI middleware around the whole application.

    With a key, every request but `OPEN_PATHS` must carry it. Without one the server listens on loopback only; then
    the Host header must name loopback too, so that a web page cannot reach it by rebinding its own name.
    """

    def __init__(self, app: ASGIApp, *, api_key: str | None, max_body_bytes: int) -> None:
        self._app = app
        self._api_key = usable_key(api_key)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex[:24]}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        async def fail(problem: Problem, extra: dict[str, str] | None = None) -> None:
            await error_response(problem, request_id, extra)(scope, receive, send_with_id)

        scope["state"]["principal"] = LOCAL
        problem = self._refusal(scope, headers)
        if problem is not None:
            challenge = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
            await fail(problem, challenge)
            return
        try:
            await self._app(scope, self._limited(receive), send_with_id)
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if not started:
                await fail(INTERNAL)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        """Why this request is not let in; None if it is."""
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body_bytes:
            return self._too_large()
        if self._api_key is None:
            host = headers.get("host", "")
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if not is_loopback(name):
                message = f"this server has no key and answers only to localhost, not to {host[:100]!r}"
                return Problem("invalid_request_error", "host_not_allowed", message, 421)
        elif scope["path"] not in OPEN_PATHS and not self._has_key(headers):
            message = "send the server's key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`"
            return Problem("authentication_error", "unauthorized", message, 401)
        return None

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not given or not self._api_key:
            return False
        return hmac.compare_digest(given.encode("latin-1"), self._api_key.encode())

    def _too_large(self) -> Problem:
        message = f"the body is larger than the {self._max_body_bytes:,} bytes that this server reads"
        return Problem("invalid_request_error", "body_too_large", message, 413)

    def _limited(self, receive: Receive) -> Receive:
        read = 0

        async def receive_counted() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self._max_body_bytes:
                    raise HTTPException(413, self._too_large().message)  # FastAPI lets only this kind through
            return message

        return receive_counted
