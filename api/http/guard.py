"""The outermost layer: request ids, who is let in, the body limit, the audit log, and the last catch for errors."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thresher.api.errors import Problem
from thresher.api.http.access import OPEN_PATHS, OPEN_PREFIX, Access, Admission
from thresher.api.http.errors import INTERNAL, error_response
from thresher.api.service.audit import AuditLog, Entry

logger = logging.getLogger("thresher.api")

GONE = 499
"""What the audit log calls the status where the client had gone before there was an answer."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Guard:
    """ASGI middleware around the whole application.

    Routes find in `request.state`: `request_id`, `principal`, and `objects`, ids by kind that the audit log is to name
    beside those in the path.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        audit: AuditLog | None,
        all_audited: bool,
        limit: int,
        limits: Sequence[tuple[re.Pattern[str], int]] = (),
    ) -> None:
        """`limit`: bytes of a body; `limits`: others, for paths that a pattern matches whole.

        `all_audited`: enter requests without a key of an open server too.
        """
        self._app = app
        self._access = access
        self._audit = audit
        self._all_audited = all_audited
        self._max_body_bytes = limit
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":  # there are none, and one that is added must not go round the guard
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.time(), time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex[:24]}"
        admission = self._access.admit(scope["path"], headers, (scope.get("client") or (None,))[0])
        scope.setdefault("state", {}).update(request_id=request_id, principal=admission.principal, objects={})
        answer = _Answer(send, {**admission.headers, "X-Request-ID": request_id})
        try:
            await self._serve(admission, headers, scope, receive, answer)
        finally:
            if self._audit is not None and self._is_audited(admission, scope["path"]):
                self._audit.write(_entry(admission, scope, answer, began))

    async def _serve(
        self, admission: Admission, headers: Headers, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        request_id = scope["state"]["request_id"]

        async def fail(problem: Problem) -> None:
            await error_response(problem, request_id)(scope, receive, answer)

        length = headers.get("content-length", "")
        limit = next((most for path, most in self._limits if path.fullmatch(scope["path"])), self._max_body_bytes)
        if admission.refusal is not None:
            await fail(admission.refusal)
        elif length.isdecimal() and int(length) > limit:
            await fail(_too_large(limit))
        else:
            try:
                await self._app(scope, _limited(receive, limit), answer)
            except Exception:
                logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
                if answer.status == GONE:
                    await fail(INTERNAL)

    def _is_audited(self, admission: Admission, path: str) -> bool:
        if admission.sent_key or self._all_audited:
            return True
        return self._access.demands_key and path not in OPEN_PATHS and not path.startswith(OPEN_PREFIX)


class _Answer:
    """Sends what the application answers, with headers of ours; remembers its status, and the path of what it made."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send = send
        self._headers = headers
        self.status = GONE
        self.made: str | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            if self.status in (201, 202):
                self.made = headers.get("location")
            for name, value in self._headers.items():
                headers[name] = value
        await self._send(message)


def _entry(admission: Admission, scope: Scope, answer: _Answer, began: tuple[float, float]) -> Entry:
    state, who = scope["state"], admission.principal
    route = getattr(scope.get("route"), "path", None)
    if route is None and "endpoint" in scope:
        route = scope.get("root_path") or None  # an application that is mounted
    made = {} if answer.made is None else {"made": answer.made}
    ids = {**scope.get("path_params", {}), **state["objects"], **made}
    return Entry(
        time=began[0],
        request_id=state["request_id"],
        key_id=who.key_id if who else None,
        tenant=who.tenant if who else None,
        client=(scope.get("client") or (None,))[0],
        method=scope["method"],
        route=route,
        objects={kind: str(value) for kind, value in ids.items()},
        status=answer.status,
        duration_ms=(time.perf_counter() - began[1]) * 1_000,
    )


def _too_large(limit: int) -> Problem:
    message = f"the body is larger than the {limit:,} bytes that this server reads"
    return Problem("invalid_request_error", "body_too_large", message, 413)


def _limited(receive: Receive, limit: int) -> Receive:
    read = 0

    async def receive_counted() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, _too_large(limit).message)  # FastAPI lets only this kind through
        return message

    return receive_counted
