"""The layer around everything: metrics, spans and the access log of each HTTP request."""

from __future__ import annotations

import json
import logging
import re
import time
from contextlib import nullcontext, suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thresher.api.service.monitoring.metrics import METHODS, OTHER, Metrics
from thresher.api.service.monitoring.tracing import RequestSpan, Tracing
from thresher.api.service.principal import Principal

access = logging.getLogger("thresher.access")

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Routes that machines ask every few seconds; they are logged at DEBUG."""

HUNG_UP = 499
"""What a request counts as whose client went before a response began."""

_LONGEST_PATH = 200


class Telemetry:
    """ASGI middleware. It has to be the outermost, so that it sees what the guard turns away, too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        method = scope["method"] if scope["method"] in METHODS else OTHER
        state = scope.setdefault("state", {})
        status, sent, error = 0, 0, None

        async def send_watched(message: Message) -> None:
            nonlocal status, sent, error
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body = message.get("body", b"")
                if status >= 400 and not sent:
                    error = _error_code(status, body)
                sent += len(body)
            await send(message)

        tracing = self._tracing
        self._metrics.requests_in_flight.inc()
        with tracing.request(method, Headers(scope=scope)) if tracing else nullcontext() as span:
            try:
                await self._app(scope, receive, send_watched)
            except Exception:
                status = status or 500
                raise
            finally:
                seconds = time.perf_counter() - started
                self._metrics.requests_in_flight.dec()
                self._ended(scope, state, method, status or HUNG_UP, seconds, sent, error, span)

    def _ended(
        self,
        scope: Scope,
        state: dict[str, Any],
        method: str,
        status: int,
        seconds: float,
        sent: int,
        error: str | None,
        span: RequestSpan | None,
    ) -> None:
        route = route_of(scope)
        self._metrics.request_ended(method, route, status, seconds)
        if error is not None:
            self._metrics.request_rejected(error)
        if span is not None:
            span.ended(method, route, status, error)
        level = logging.DEBUG if route in PROBES else logging.INFO
        if not access.isEnabledFor(level):
            return
        principal = state.get("principal")
        fields: dict[str, Any] = {
            "method": method,
            "path": _shown_path(scope),
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 1),
            "bytes": sent,
            "request_id": state.get("request_id"),
            "client": (scope.get("client") or ("",))[0],
        }
        if isinstance(principal, Principal):
            fields |= {"tenant": principal.tenant, "key_id": principal.key_id}
        if error is not None:
            fields["error"] = error
        if span is not None:
            fields["trace_id"] = span.trace_id
        access.log(level, "%s %s %d", method, fields["path"], status, extra={"fields": fields})


def _error_code(status: int, body: bytes) -> str | None:
    """The code of an error, read from the response: whoever made it, the guard, a route or a door, it says so there."""
    with suppress(ValueError, KeyError, TypeError):
        code = json.loads(body)["error"]["code"]
        if isinstance(code, str) and _CODE.fullmatch(code):
            return code
    return _BY_STATUS.get(status)


_CODE = re.compile(r"[a-z_]{1,40}")
_BY_STATUS = {401: "unauthorized", 403: "missing_scope", 413: "body_too_large", 429: "rate_limited"}
"""What it is where a door tells errors in another shape."""


def route_of(scope: Scope) -> str:
    """The template of the route that a request came to, of which there is a bounded number; `other` for none."""
    template = getattr(scope.get("route"), "path", None)
    if isinstance(template, str):
        return template or "/"
    path = scope["path"]
    # Only FastAPI's own routes note themselves. Of others, those that have one path are known by it.
    known = any(path == getattr(route, "path", None) for route in getattr(scope.get("app"), "routes", ()))
    return path if known and "{" not in path else OTHER


def _shown_path(scope: Scope) -> str:
    """The path as it came, still percent-encoded, so that it cannot forge a line; never the query string."""
    raw = scope.get("raw_path") or scope["path"].encode()
    shown = raw.decode("ascii", "backslashreplace")[:_LONGEST_PATH]
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
