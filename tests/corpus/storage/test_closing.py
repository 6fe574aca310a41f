"""Closing a collection is quick, whatever is under way, and a stranger on the server's port costs no search."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import Backends, Child, Server
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionClosed
from thresher.corpus.lexical.tantivy_index import TantivyIndex
from thresher.corpus.vectors.child import ChildIndex
from thresher.corpus.vectors.chroma import ChromaIndex

PROMPT = 4.0
"""Seconds; what it takes on an idle machine is below one and a half."""

TEXTS = {f"d{i}": f"passage {i} of the voyage to port{i}" for i in range(20)}


def filled(path: Path, backends: Backends | None = None) -> Collection:
    opened = Collection.create(path, EMBEDDER, exact_below=0, **({} if backends is None else {"backends": backends}))
    opened.upsert([prepared(name, text) for name, text in TEXTS.items()], source_id="s")
    opened.search("voyage")
    return opened


def close_in_time(opened: Collection) -> None:
    started = time.monotonic()
    opened.close()
    assert time.monotonic() - started < PROMPT


@pytest.mark.parametrize("index", [TantivyIndex, ChromaIndex])
def test_a_rebuild_under_way_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: type) -> None:
    monkeypatch.setattr("thresher.corpus.lexical.managed._PAGE", 1)
    monkeypatch.setattr("thresher.corpus.vectors.following.PAGE", 1)
    opened = filled(tmp_path / "c")
    started, ended = threading.Event(), []
    apply: Callable[..., None] = index.apply  # type: ignore[attr-defined]

    def slow(self: Any, **what: Any) -> None:
        started.set()
        time.sleep(0.5)
        apply(self, **what)

    def rebuild() -> None:
        try:
            opened.rebuild()
        except CollectionClosed as error:
            ended.append(error)

    monkeypatch.setattr(index, "apply", slow)
    thread = threading.Thread(target=rebuild)
    thread.start()
    assert started.wait(10)
    close_in_time(opened)
    thread.join(10)
    assert ended
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0) as again:
        assert again.verify().problems == ()


def test_a_child_that_does_nothing_is_not_waited_for(tmp_path: Path) -> None:
    backends = Backends(dense=Child())
    opened = filled(tmp_path / "c", backends)
    index = opened._dense._chroma
    assert isinstance(index, ChildIndex)
    os.kill(index.pid, signal.SIGSTOP)
    close_in_time(opened)
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0, backends=backends) as again:
        assert again.verify().problems == ()


class Stranger(BaseHTTPRequestHandler):
    """Some other service, content with whatever it is asked."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_stranger_on_the_port_of_the_server_costs_nothing(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        backends = Backends(dense=Server(f"http://127.0.0.1:{stranger.server_port}"))
        with filled(tmp_path / "c", backends) as opened:
            assert opened.search(TEXTS["d7"])[0].chunk.document_id == "d7"
            assert "is no Chroma server" in opened.verify().problems[0]
        stranger.shutdown()
