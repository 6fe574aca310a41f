"""A real HTTP server that answers from a queue of replies: for clients of model endpoints."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any, dict[str, str]]
"""Status, body (a string goes as it is, anything else as JSON), headers."""


class QueueServer:
    """Answers POSTs with the next of `replies`, then as `always` says; remembers every request.

    A reply, and `always`, may be a function of the request's JSON body.
    """

    def __init__(self, always: Callable[[Any], Answer]) -> None:
        self.always = always
        self.replies: list[Answer | Callable[[Any], Answer]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.waits: list[float] = []
        self.delay_s = 0.0
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    outer.requests.append(body)
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                    outer.paths.append(self.path)
                    reply = outer.replies.pop(0) if outer.replies else outer.always
                status, payload, headers = reply(body) if callable(reply) else reply
                raw = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
                time.sleep(outer.delay_s)
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(raw))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    @contextmanager
    def running(self) -> Iterator[QueueServer]:
        thread = threading.Thread(target=lambda: self._http.serve_forever(poll_interval=0.02))
        thread.start()
        yield self
        self._http.shutdown()
        self._http.server_close()
        thread.join()
