"""How a server stops, as a process of its own: what runs may end, what is new is refused, nothing is lost."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from face_support import PATIENCE_S, Served, serving, wait_until
from stub_model import Reply, StubModel, serve_model

from thresher.corpus.collection import Collection
from thresher.corpus.paths import collection_path

SEARCH = Reply(calls=[("search_corpus", {"query": "yard"})])
FINISH = Reply(calls=[("finish", {"evidence_ids": ["c1"], "sufficient": True})])
QUESTION = {"query": "Where stood the yard?", "collections": ["harbour"], "effort": "low"}


@contextmanager
def server(model: StubModel, *, grace_s: float) -> Iterator[tuple[Served, httpx.Client]]:
    environment = {
        "THRESHER_POLICY": "chat:stub",
        "THRESHER_MODEL_URL": model.url,
        "THRESHER_SHUTDOWN_GRACE_S": str(grace_s),
    }
    with (
        serving("-c", "harbour", env=environment) as made,
        httpx.Client(base_url=made.url, timeout=PATIENCE_S) as http,
    ):
        yield made, http


def stream(http: httpx.Client, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a search until the stream ends."""
    found = []
    with http.stream("POST", "/v1/search", json={**QUESTION, "stream": True, **fields}) as response:
        assert response.status_code == 200
        kind = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((kind, json.loads(line.removeprefix("data: "))))
    return found


def stops(made: Served, sent: signal.Signals, *, code: int) -> str:
    """It ends with that exit code; what it said on stderr."""
    made.process.send_signal(sent)
    return ended(made, code)


def ended(made: Served, code: int) -> str:
    _, stderr = made.process.communicate(timeout=PATIENCE_S)
    assert made.process.returncode == code, stderr
    assert "Traceback" not in stderr
    return stderr


def is_stopping(http: httpx.Client) -> bool:
    response = http.get("/readyz")
    stopping = response.status_code == 503
    if stopping:
        assert response.json()["status"] == "unavailable"
        assert response.json()["checks"]["running"] == {"status": "down", "detail": "stopping"}
    return stopping


def test_a_search_that_runs_may_end(harbour: str) -> None:
    release = threading.Event()

    def waits(body: dict[str, Any]) -> Reply:
        assert release.wait(PATIENCE_S)
        return FINISH

    with (
        serve_model(SEARCH, waits) as model,
        server(model, grace_s=PATIENCE_S) as (made, http),
        ThreadPoolExecutor(1) as threads,
    ):
        listening = threads.submit(stream, http)
        try:
            wait_until(lambda: len(model.requests) == 2, "came to its second turn")
            made.process.send_signal(signal.SIGTERM)
            wait_until(lambda: is_stopping(http), "said that it stops")
            assert http.get("/healthz").status_code == 200
            refused = http.post("/v1/search", json={**QUESTION, "effort": "minimal"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
            assert int(refused.headers["retry-after"]) >= 1
        finally:
            release.set()
        events = listening.result(PATIENCE_S)
        assert events[-1][0] == "search.completed"
        response = events[-1][1]["response"]
        assert (response["status"], response["stop_reason"]) == ("completed", "finished")
        assert [result["document_id"] for result in response["results"]]
        ended(made, 0)
    with Collection.open(collection_path(harbour)):  # its lock was given back
        pass


@pytest.mark.slow
def test_when_the_grace_is_over_streams_get_what_there_is_and_background_searches_wait(harbour: str) -> None:
    with serve_model(always=Reply(hang=True)) as model:
        model.plays(SEARCH, Reply(hang=True), SEARCH)
        with server(model, grace_s=0.2) as (made, http), ThreadPoolExecutor(1) as threads:
            queued = http.post("/v1/search", json={**QUESTION, "background": True})
            assert queued.status_code == 202
            wait_until(lambda: len(model.requests) == 2, "came to its second turn")
            listening = threads.submit(stream, http)
            wait_until(lambda: len(model.requests) == 4, "came to its second turn")
            stops(made, signal.SIGTERM, code=0)
            kind, data = listening.result(PATIENCE_S)[-1]
        assert kind == "search.completed"
        response = data["response"]
        assert (response["status"], response["stop_reason"]) == ("partial", "cancelled")
        assert response["results"]  # what it had found by then

        model.plays(SEARCH, FINISH)
        with server(model, grace_s=0.2) as (made, http):
            place = f"/v1/searches/{queued.json()['id']}"
            wait_until(lambda: http.get(place).json()["status"] == "completed", "ran again")
            assert http.get(place).json()["results"]
            stops(made, signal.SIGINT, code=130)


def test_a_second_signal_ends_it_at_once(harbour: str) -> None:
    with (
        serve_model(SEARCH, always=Reply(hang=True)) as model,
        server(model, grace_s=3_600) as (made, http),
        ThreadPoolExecutor(1) as threads,
    ):
        listening = threads.submit(stream, http)
        wait_until(lambda: len(model.requests) == 2, "came to its second turn")
        made.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_stopping(http), "said that it stops")
        assert made.process.poll() is None
        stops(made, signal.SIGTERM, code=143)
        with pytest.raises(httpx.HTTPError):
            listening.result(PATIENCE_S)
    with Collection.open(collection_path(harbour)):
        pass
