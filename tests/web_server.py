"""A real HTTP server on a loopback port, with pages that a test changes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/html; charset=utf-8"})
    etag: bool = False
    last_modified: str = ""
    wait_s: float = 0.0
    drip_s: float = 0.0
    """Seconds between single bytes."""
    cut: bool = False
    """Announce a longer body than is sent, then hang up."""
    times: int | None = None
    """How often this is the answer, before it is `then`."""
    then: Answer | None = None


@dataclass
class Site:
    port: int
    pages: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], int]] = field(default_factory=list)
    """(path, headers, status answered)."""
    busiest: int = 0
    _busy: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def html(self, path: str, text: str, title: str = "", *, etag: bool = False) -> str:
        head = f"<title>{title}</title>" if title else ""
        self.pages[path] = Answer(f"<html><head>{head}</head><body><p>{text}</p></body></html>".encode(), etag=etag)
        return self.url(path)

    def statuses(self, path: str) -> list[int]:
        return [status for asked, _, status in self.requests if asked == path]

    def answer(self, path: str) -> Answer:
        with self._guard:
            found = self.pages.get(path, Answer(status=404))
            if found.times is not None:
                if found.times == 0:
                    assert found.then is not None
                    self.pages[path] = found = found.then
                else:
                    found.times -= 1
            return found

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._guard:
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
        try:
            yield
        finally:
            with self._guard:
                self._busy -= 1


@contextmanager
def serve_site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with site.counted():
                self._answer(site.answer(self.path))

        def _answer(self, answer: Answer) -> None:
            time.sleep(answer.wait_s)
            headers = dict(answer.headers)
            tag = f'"{hashlib.sha256(answer.body).hexdigest()[:16]}"'
            status, body = answer.status, answer.body
            if answer.etag:
                headers["ETag"] = tag
            if answer.last_modified:
                headers["Last-Modified"] = answer.last_modified
            if (answer.etag and self.headers.get("If-None-Match") == tag) or (
                answer.last_modified and self.headers.get("If-Modified-Since") == answer.last_modified
            ):
                status, body = 304, b""
            site.requests.append((self.path, dict(self.headers), status))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + (10 if answer.cut else 0)))
            self.end_headers()
            try:
                if answer.drip_s:
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(answer.drip_s)
                else:
                    self.wfile.write(body)
            except OSError:
                pass
            if answer.cut:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
