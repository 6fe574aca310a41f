"""Searches and real server processes that are killed, or stopped, amid them."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import PATIENCE_S, serving
from live_support import live_server
from search_support import QUESTION, Frame, frames_of, scripted
from stub_model import Reply, serve_model

from thresher.api.service.database import Database, server_database
from thresher.api.service.instance import Instance
from thresher.api.service.searching.store import Row, SearchStore

FOUNDER = "The founder of the Brask works"


class Model:
    """Looks once; then says nothing until it is let, and then ends with what names the founder."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Reply:
        text = "".join(str(message.get("content")) for message in body["messages"])
        if FOUNDER not in text:
            return Reply(calls=[("search_corpus", {"query": "Brask works founder"})])
        if not self.let.is_set():
            return Reply(hang=True)
        evidence = text[: text.rindex('" doc=', 0, text.index(FOUNDER))].rpartition('<chunk id="')[2]
        fields = {"evidence_ids": [evidence], "sufficient": True, "quotes": {evidence: "Edda Brask"}}
        return Reply(calls=[("finish", fields)])


def until_result(http: httpx.Client, body: dict[str, Any], seen: list[Frame]) -> None:
    """Read a stream until its server dies."""
    try:
        with http.stream("POST", "/v1/search", json={"query": QUESTION, "stream": True, **body}) as response:
            for frame in frames_of(response):
                seen.append(frame)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        pass


@pytest.mark.slow
def test_a_server_that_is_killed_takes_its_searches_up_again(harbour: str) -> None:
    """Background searches run again and complete; foreground ones, whose clients are gone, have failed."""
    model = Model()
    foreground: list[Frame] = []
    background: list[Frame] = []
    with serve_model(always=model) as stub:
        env = {"THRESHER_POLICY": f"chat:stub@{stub.url}", "THRESHER_COLLECTION": harbour}
        with (
            serving(env=env) as served,
            httpx.Client(base_url=served.url, timeout=PATIENCE_S) as http,
            ThreadPoolExecutor(2) as threads,
        ):
            threads.submit(until_result, http, {}, foreground)
            threads.submit(until_result, http, {"background": True}, background)
            for _ in range(4):  # both have looked, and wait
                assert stub.arrived.acquire(timeout=PATIENCE_S)
            served.process.kill()
            served.process.wait(PATIENCE_S)
        assert foreground[0].event == "search.created"
        assert background[-1].event in ("tool.result", "turn.started")
        model.let.set()
        ids = [seen[0].data["search_id"] for seen in (foreground, background)]
        with serving(env=env) as served, httpx.Client(base_url=served.url, timeout=PATIENCE_S) as http:
            failed = http.get(f"/v1/searches/{ids[0]}").json()
            headers = {"Last-Event-ID": str(background[-1].id)}
            with http.stream("GET", f"/v1/searches/{ids[1]}/events", headers=headers) as response:
                rest = list(frames_of(response))
            completed = http.get(f"/v1/searches/{ids[1]}").json()
            listed = http.get("/v1/searches").json()["data"]
            served.stop()
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_stopped")
    assert [frame.event for frame in rest][:2] == ["search.restarted", "search.created"]
    assert rest[-1].event == "search.completed"
    assert rest[-1].data["response"] == completed
    assert (completed["status"], completed["stop_reason"]) == ("completed", "finished")
    assert [result["document_id"] for result in completed["results"]] == ["brask.md"]
    numbers = [frame.id for frame in background + rest]
    assert numbers == sorted(set(numbers))
    assert {(each["id"], each["status"]) for each in listed} == {(ids[0], "failed"), (ids[1], "completed")}


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_answers_with_what_it_has(harbour: str) -> None:
    model = Model()
    with serve_model(always=model) as stub:
        env = {
            "THRESHER_POLICY": f"chat:stub@{stub.url}",
            "THRESHER_COLLECTION": harbour,
            "THRESHER_SHUTDOWN_GRACE_S": "0.2",
        }
        with serving(env=env) as served, httpx.Client(base_url=served.url, timeout=PATIENCE_S) as http:
            left = http.post("/v1/search", json={"query": QUESTION, "background": True}).json()
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(http.post, "/v1/search", json={"query": QUESTION})
                for _ in range(4):
                    assert stub.arrived.acquire(timeout=PATIENCE_S)
                served.process.send_signal(signal.SIGINT)
                response = waiting.result()
            served.process.communicate(timeout=PATIENCE_S)
    assert response.status_code == 200
    body = response.json()
    assert (body["status"], body["stop_reason"]) == ("partial", "cancelled")
    assert {"brask.md"} <= {result["document_id"] for result in body["results"]}
    with live_server(policy=scripted) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        http.get(f"/v1/searches/{left['id']}/events")
        assert http.get(f"/v1/searches/{left['id']}").json()["status"] == "completed"
        assert http.get(f"/v1/searches/{body['id']}").json() == body


@pytest.mark.parametrize(("attempts", "stops", "status"), [(2, 0, "completed"), (3, 0, "failed"), (5, 3, "completed")])
def test_a_search_that_crashes_servers_is_given_up(
    harbour: str, thresher_home: Path, attempts: int, stops: int, status: str
) -> None:
    """Servers that were stopped in order do not count."""
    owner = Instance()
    owner.open()
    body = json.dumps({"query": QUESTION, "background": True})
    with closing(Database(server_database())) as database:
        SearchStore(database, keep_days=1, keep_count=10).add(
            Row("search_x", "", owner.id, True, "running", QUESTION, (harbour,), body, 1e9)
        )
        with database.write() as connection:
            connection.execute("UPDATE searches SET attempts = ?, stops = ?", (attempts, stops))
    owner.close()
    with live_server(policy=scripted) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        with http.stream("GET", "/v1/searches/search_x/events") as response:
            told = list(frames_of(response))
        found = http.get("/v1/searches/search_x").json()
    assert found["status"] == status, found["error"]
    assert told[-1].data["response"] == found
    assert ("search.restarted" in [frame.event for frame in told]) is (status == "completed")
