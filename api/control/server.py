"""The server's end of the control socket: a small application on a unix socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from thresher.api.control import PROTOCOL
from thresher.api.control.jobs import Jobs, failure
from thresher.api.control.peers import same_user
from thresher.api.control.rundir import RunFile
from thresher.api.errors import ApiError, explain
from thresher.api.operations.base import Operation, Text
from thresher.api.operations.base import Request as OperationRequest
from thresher.api.operations.table import operation
from thresher.corpus.errors import CorpusError
from thresher.corpus.paths import collection_path

if TYPE_CHECKING:
    from thresher.api.service.registry import Registry

logger = logging.getLogger("thresher.api")

STOP_S = 10.0
"""How long a server that stops waits for operations to come to their next step."""

_LARGEST_BODY = 16 * 1024 * 1024


class CallBody(OperationRequest):
    """The body of `POST /operations`; `path` is the collection's directory as the caller sees it."""

    protocol: int
    version: str
    id: str
    operation: str
    collection: str
    path: Text
    request: dict[str, Any]


class ControlSocket:
    """Open between `open` and `close`."""

    def __init__(self, registry: Registry) -> None:
        self._jobs = Jobs(registry)
        self._run_file: RunFile | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Listen. A socket that cannot be made is no reason not to serve: it is logged."""
        try:
            self._run_file = RunFile(version("thresher"))
        except OSError as error:
            logger.warning("commands beside this server will be refused: its socket cannot be made (%s)", error)
            return
        config = uvicorn.Config(
            _Application(self._jobs),
            http=_SameUserProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        sockets = [self._run_file.socket]
        # A thread, and so an event loop, of its own: uvicorn leaves the signals to the main one.
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name="control-socket", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it runs an operation for a command."""
        return self._jobs.busy

    def close(self) -> None:
        """Stop the operations that run, hang up, and take the socket away. Safe to call twice, or on a closed one."""
        if left := self._jobs.stop(STOP_S):
            logger.warning("waiting for %s to end", ", ".join(left))
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP_S)
        if self._run_file is not None:
            self._run_file.close()
            self._run_file = None


class _SameUserProtocol(H11Protocol):
    """HTTP that hangs up on anyone but this user."""

    def connection_made(self, transport: Any) -> None:
        """Look at who has connected before a byte is read."""
        if not same_user(transport.get_extra_info("socket")):
            self.transport = transport  # which the base class closes once more when the connection is lost
            transport.abort()
            return
        super().connection_made(transport)


class _Application:
    """Plain ASGI: the answer is a stream that ends with the caller, whichever goes first."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            if scope["method"] != "POST" or not path.startswith("/operations"):
                raise ApiError(404, "route_not_found", f"there is no {scope['method']} {path}")
            body = await _read(receive)
            if path == "/operations":
                await self._call(_checked(body), receive, send)
                return
            found = self._jobs.cancel(path.removeprefix("/operations/").removesuffix("/cancel"))
            await _answer(send, 200, {"cancelled": found})
        except Exception as error:
            problem = explain(error)
            if problem is None:
                raise
            await _answer(send, problem.status, failure(problem))

    async def _call(self, call: tuple[CallBody, Operation[Any], Any], receive: Receive, send: Send) -> None:
        body, asked, request = call
        job = self._jobs.start(body.id, asked, request, body.collection)
        watcher = asyncio.create_task(_gone(receive))
        reading: asyncio.Task[dict[str, Any]] | None = None
        try:
            await _begin(send, 200)
            while True:
                reading = asyncio.create_task(job.next())
                await asyncio.wait({reading, watcher}, return_when=asyncio.FIRST_COMPLETED)
                if watcher.done():
                    return
                message = reading.result()
                ended = "result" in message or "error" in message
                await _send(send, message, more=not ended)
                if ended:
                    return
        finally:
            self._jobs.end(body.id)
            watcher.cancel()
            if reading is not None:
                reading.cancel()


def _checked(body: bytes) -> tuple[CallBody, Operation[Any], Any]:
    """What is asked for, if it can be done here.

    Raises:
        ApiError: it cannot.
    """
    try:
        fields = json.loads(body)
        _same_release(fields)
        call = CallBody.model_validate(fields)
        asked = operation(call.operation)
        request = asked.request.model_validate(call.request)
    except KeyError as error:
        raise ApiError(422, "invalid_request", f"there is no operation {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ApiError(422, "invalid_request", f"{place}: {first['msg']}", param=place) from error
    except (ValueError, TypeError) as error:
        raise ApiError(422, "invalid_json", f"the body is not a call: {error}") from error
    try:
        here = collection_path(call.collection)
    except CorpusError as error:
        raise ApiError(422, "invalid_request", str(error)) from error
    if Path(call.path).resolve() != here.resolve():
        message = f"this server serves {here}, not {call.path}: use the same THRESHER_HOME as the server"
        raise ApiError(409, "other_home", message, type="conflict_error")
    return call, asked, request


def _same_release(fields: Any) -> None:
    ours = (PROTOCOL, version("thresher"))
    theirs = (fields.get("protocol"), fields.get("version"))
    if theirs != ours:
        raise ApiError(
            409,
            "version_mismatch",
            f"this command is thresher {theirs[1]} (protocol {theirs[0]}), the server that has the collection is "
            f"{ours[1]} (protocol {ours[0]}): restart the server, then run the command again",
            type="conflict_error",
        )


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > _LARGEST_BODY:
            raise ApiError(413, "body_too_large", f"a call may have {_LARGEST_BODY:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send, status: int) -> None:
    headers = [(b"content-type", b"application/x-ndjson")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send(send: Send, message: dict[str, Any], *, more: bool) -> None:
    line = json.dumps(message, default=str).encode() + b"\n"
    await send({"type": "http.response.body", "body": line, "more_body": more})


async def _answer(send: Send, status: int, message: dict[str, Any]) -> None:
    await _begin(send, status)
    await _send(send, message, more=False)
