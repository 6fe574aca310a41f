"""The command's end of the control socket."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from importlib.metadata import version
from typing import Any

from thresher.api.control import PROTOCOL
from thresher.api.control.peers import same_user
from thresher.api.control.rundir import Announcement, find
from thresher.api.errors import ForwardedError, Problem
from thresher.corpus.paths import collection_path

CONNECT_S = 10
SILENCE_S = 60
"""A server that has told nothing for so long, not even that it is alive, hangs."""


@dataclass(frozen=True, slots=True)
class Control:
    """A server of this user that answers."""

    announcement: Announcement

    def call(self, operation: str, collection: str, request: Mapping[str, Any]) -> Call:
        """Start an operation there.

        Raises:
            ForwardedError: the server cannot be reached any more.
        """
        return Call(self.announcement, operation, collection, request)


def find_control(pid: int) -> Control | None:
    """How to reach the server with that pid; None if that process is no server, or one that does not let us in."""
    announcement = find(pid)
    if announcement is None:
        return None
    try:
        connection = _Connection(announcement.socket)
        connection.connect()
    except OSError:
        return None
    connection.close()
    return Control(announcement)


class Call:
    """An operation that runs in a server."""

    def __init__(self, announcement: Announcement, operation: str, collection: str, request: Mapping[str, Any]) -> None:
        self._id = uuid.uuid4().hex
        self._server = announcement
        self._connection = _Connection(announcement.socket)
        body = {
            "protocol": PROTOCOL,
            "version": version("thresher"),
            "id": self._id,
            "operation": operation,
            "collection": collection,
            "path": str(collection_path(collection).absolute()),
            "request": request,
        }
        try:
            self._connection.request("POST", "/operations", json.dumps(body, default=str))
        except (OSError, HTTPException) as error:
            self.close()
            raise self._lost() from error

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self, on_event: Callable[[str, Mapping[str, Any]], None] | None = None) -> dict[str, Any]:
        """Wait for the end and return the operation's document. `on_event` gets the progress.

        Raises:
            ForwardedError: the operation failed there, or the server ended before it did.
            KeyboardInterrupt: the operation was stopped as `cancel` asked.
        """
        try:
            response = self._connection.getresponse()
            while line := response.readline():
                message = json.loads(line)
                if "progress" in message and on_event is not None:
                    on_event(message["progress"]["kind"], message["progress"]["data"])
                elif "result" in message:
                    return dict(message["result"])
                elif "error" in message:
                    raise self._failure(message["error"], response)
        except TimeoutError as error:
            message = (
                f"the server (process {self._server.pid}) has not answered for {SILENCE_S} s; see its log, or stop it "
                "and run the same command again"
            )
            raise ForwardedError(Problem("api_error", "server_silent", message, 504)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise self._lost() from error
        raise self._lost()

    def cancel(self) -> None:
        """Ask the server to stop the operation at its next step. Its result, or that it stopped, still comes."""
        with suppress(OSError, HTTPException):
            connection = _Connection(self._server.socket)
            connection.request("POST", f"/operations/{self._id}/cancel")
            connection.getresponse().read()
            connection.close()

    def close(self) -> None:
        """Hang up; an operation that still runs is told to stop."""
        self._connection.close()

    def _failure(self, error: Mapping[str, Any], response: HTTPResponse) -> BaseException:
        if error.get("code") == "interrupted":
            return KeyboardInterrupt()
        kind, code, message = (str(error.get(name)) for name in ("type", "code", "message"))
        return ForwardedError(
            Problem(kind, code, message, int(error.get("status", response.status)), error.get("param"))
        )

    def _lost(self) -> ForwardedError:
        message = (
            f"the server (process {self._server.pid}) ended before it answered; what it had acknowledged is kept: "
            "run the same command again"
        )
        return ForwardedError(Problem("api_error", "server_lost", message, 503))


class _Connection(HTTPConnection):
    """HTTP over a unix socket whose other end runs as this user."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SILENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(self._path)
        if not same_user(self.sock):
            self.close()
            raise PermissionError(1, "the server runs as another user", self._path)
        self.sock.settimeout(self.timeout)
