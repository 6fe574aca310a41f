from __future__ import annotations

import asyncio
import errno
import json
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr, ValidationError

from thresher.api.config import Settings
from thresher.api.errors import ConfigError
from thresher.api.http import create_app
from thresher.api.http.access import is_loopback
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionDamaged, CollectionLocked, StorageFull
from thresher.corpus.paths import collection_path
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View

QUESTION = "Who founded the works that made the engine of the ferry Alma?"


@asynccontextmanager
async def client(
    *, host: str = "localhost", only: tuple[str, ...] = (), policy: Any = ..., **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(
        Settings(**{"collection": "harbour", "chroma": "in-process", **settings}),
        only=only,
        policy=scripted if policy is ... else policy,
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8420") as made,
    ):
        yield made


def check_error(response: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    """Every failure has the one shape; returns its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"type", "code", "message", "param", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert (error["code"], error["param"]) == (code, param)
    assert "Traceback" not in response.text
    message: str = error["message"]
    return message


def scripted(_: Collection) -> ScriptedPolicy:
    """Search once, prune one passage, and finish with a checked quote."""

    def first(view: View) -> Decision:
        return Decision((ToolUse("search_corpus", {"query": "Brask works founder"}),))

    def second(view: View) -> Decision:
        spare = [e.id for e in view.live if e.document_id == "corran.md"]
        return Decision((ToolUse("prune_chunks", {"ids": spare}),))

    def third(view: View) -> Decision:
        best = next(e for e in view.live if "founder" in e.text)
        return Decision(
            (
                ToolUse(
                    "finish",
                    {
                        "evidence_ids": [best.id],
                        "justification": "It names her.",
                        "quotes": {best.id: "Edda Brask"},
                        "sufficient": True,
                    },
                ),
            )
        )

    return ScriptedPolicy([first, second, third])


async def test_minimal_search_has_the_documented_shape(harbour: str) -> None:
    async with client() as http:
        response = await http.post("/v1/search", json={"query": "Edda Brask", "effort": "minimal", "max_results": 2})
    assert response.status_code == 200
    body = response.json()
    assert {"id", "object", "status", "results", "answer", "citations", "stop_reason", "sufficient", "missing"} <= set(
        body
    )
    assert {"usage", "warnings", "notices"} <= set(body)
    assert (body["object"], body["status"], body["answer"], body["sufficient"]) == ("search", "completed", None, None)
    assert len(body["results"]) == 2
    first = body["results"][0]
    assert {"id", "document_id", "title", "url", "text", "score", "spans", "metadata", "source"} <= set(first)
    assert first["document_id"] == "brask.md"
    assert first["url"] == "file:///brask.md"
    assert first["metadata"] == {"year": 1958}
    assert (body["usage"]["searches"], body["usage"]["speedup"]) == (1, 1.0)
    assert body["trajectory"] is None


async def test_agentic_search_cites_and_keeps_its_trace(harbour: str, thresher_home: Path) -> None:
    async with client(policy=scripted) as http:
        body = (await http.post("/v1/search", json={"query": QUESTION, "include_trace": True})).json()
    assert body["stop_reason"] == "finished"
    assert body["sufficient"] is True
    [result] = body["results"]
    [citation] = body["citations"]
    assert citation["text"] == "Edda Brask"
    assert citation["document_id"] == result["document_id"] == "brask.md"
    start = citation["start"] - result["start"]
    assert result["text"][start : start + len("Edda Brask")] == "Edda Brask"
    assert len(body["trajectory"]["turns"]) == 3
    saved = json.loads((thresher_home / "traces" / f"{body['id']}.jsonl").read_text())
    assert saved == body["trajectory"]


async def test_traces_can_be_left_unsaved(harbour: str, thresher_home: Path) -> None:
    async with client(policy=scripted, save_traces=False) as http:
        assert (await http.post("/v1/search", json={"query": QUESTION})).status_code == 200
    assert not (thresher_home / "traces").exists()


async def test_filters_are_applied(harbour: str) -> None:
    async with client(effort="minimal") as http:
        body = {"query": "yard", "filters": {"type": "eq", "key": "year", "value": 1931}}
        found = (await http.post("/v1/search", json=body)).json()["results"]
        assert {item["document_id"] for item in found} == {"ferry.md"}
        body["filters"] = {}
        check_error(await http.post("/v1/search", json=body), 422, "invalid_filter", "filters")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_field", "query"),
        ({"query": ""}, "invalid_field", "query"),
        ({"query": "  \n"}, "invalid_request", "query"),
        ({"query": "x" * 8_001}, "invalid_field", "query"),
        ({"query": "\ud800"}, "invalid_field", "query"),
        ({"query": 7}, "invalid_field", "query"),
        ({"query": "x", "qery": "y"}, "unknown_field", "qery"),
        ({"query": "x", "\ud800": 1}, "invalid_body", None),
        ({"query": "x", "effort": "huge"}, "invalid_field", "effort"),
        ({"query": "x", "max_results": 0}, "invalid_field", "max_results"),
        ({"query": "x", "max_results": 101}, "invalid_field", "max_results"),
        ({"query": "x", "max_tokens": 4_095}, "invalid_field", "max_tokens"),
        ({"query": "x", "max_tokens": 99_999_999_999_999_999_999}, "invalid_field", "max_tokens"),
        ({"query": "x", "max_turns": 0}, "invalid_field", "max_turns"),
        ({"query": "x", "edits": "sometimes"}, "invalid_field", "edits"),
        ({"query": "x", "deadline_s": 0}, "invalid_field", "deadline_s"),
        ({"query": "x", "collections": []}, "invalid_field", "collections"),
        ({"query": "x", "collections": [f"c{n}" for n in range(9)]}, "invalid_field", "collections"),
        ({"query": "x", "collections": ["No Such"]}, "invalid_field", "collections"),
        ({"query": "x", "sources": ["corpus", "web"]}, "unsupported", "sources"),
        ({"query": "x", "sources": []}, "invalid_field", "sources"),
        ({"query": "x", "sources": ["moon"]}, "invalid_field", "sources.0"),
        ({"query": "x", "include_answer": "please"}, "invalid_field", "include_answer"),
        ({"query": "x", "stream": "yes please"}, "invalid_field", "stream"),
        ({"query": "x", "background": 2}, "invalid_field", "background"),
        ({"query": "x", "deadline_s": 1e9}, "invalid_field", "deadline_s"),
        ({"query": "x", "filters": {"type": "near", "key": "a", "value": 1}}, "invalid_filter", "filters"),
        ({"query": "x", "filters": []}, "invalid_field", "filters"),
        ([], "invalid_body", None),
    ],
)
async def test_bad_requests_name_the_field(harbour: str, body: Any, code: str, param: str | None) -> None:
    async with client() as http:
        content = json.dumps(body)  # httpx's own encoder refuses lone surrogates
        response = await http.post("/v1/search", content=content, headers={"Content-Type": "application/json"})
    assert check_error(response, 422, code, param)


async def test_a_body_that_does_not_say_that_it_is_json(harbour: str) -> None:
    async with client() as http:
        for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
            response = await http.post("/v1/search", content=b'{"query": "x"}', headers=headers)
            assert "send it with the header `Content-Type: application/json`" in check_error(
                response, 422, "invalid_body"
            )


async def test_parameters_are_named_as_they_are_written(harbour: str) -> None:
    async with client() as http:
        check_error(await http.get("/v1/collections", params={"limit": 0}), 422, "invalid_field", "limit")
        check_error(await http.delete("/v1/collections/harbour"), 422, "invalid_field", "confirm")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"query": "x", "deadline_s": NaN}', b"null"])
async def test_broken_bodies(harbour: str, content: bytes) -> None:
    async with client() as http:
        response = await http.post("/v1/search", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert set(response.json()["error"]) == {"type", "code", "message", "param", "request_id"}


async def test_false_is_accepted_where_true_is_not(harbour: str) -> None:
    body = {
        "query": "yard",
        "effort": "minimal",
        "collections": ["harbour"],
        "sources": ["corpus"],
        "filters": None,
        "include_answer": False,
        "stream": False,
        "background": False,
    }
    async with client(collection="other") as http:
        assert (await http.post("/v1/search", json=body)).status_code == 200


async def test_unknown_collections_and_routes(harbour: str) -> None:
    async with client() as http:
        response = await http.post("/v1/search", json={"query": "x", "collections": ["nowhere"]})
        assert "harbour" in check_error(response, 404, "collection_not_found", "collections")
        check_error(await http.get("/v1/nothing"), 404, "route_not_found")
        check_error(await http.get("/v1/search"), 405, "method_not_allowed")
        check_error(await http.get("/docs"), 404, "route_not_found")
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/openapi.json")).status_code == 200


async def test_only_the_named_collections_are_served(harbour: str) -> None:
    async with client(only=("other",)) as http:
        response = await http.post("/v1/search", json={"query": "x", "collections": ["harbour"]})
    assert "harbour'; this server has none" in check_error(response, 404, "collection_not_found", "collections")


async def test_named_collections_are_opened_at_the_start(
    harbour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warmed = threading.Event()
    monkeypatch.setattr(Collection, "warm", lambda collection: warmed.set())
    async with client(only=("absent", harbour)):
        assert await asyncio.to_thread(warmed.wait, 30)
        with pytest.raises(CollectionLocked):
            Collection.open(collection_path(harbour))
    assert (
        "collection 'absent' was not opened ahead of its first search: there is no collection 'absent'" in caplog.text
    )
    with Collection.open(collection_path(harbour)):  # given back when the server stops
        pass


async def test_a_collection_that_cannot_be_warmed_is_searched_all_the_same(
    harbour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(collection: Collection) -> None:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(Collection, "warm", fail)
    async with client(only=(harbour,), effort="minimal") as http:
        for _ in range(300):
            if caplog.records:
                break
            await asyncio.sleep(0.1)
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200
    assert "bad sector" in caplog.text


async def test_collections_that_nobody_named_are_opened_when_they_are_searched(
    harbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Collection, "warm", lambda collection: pytest.fail("warmed"))
    async with client():
        with Collection.open(collection_path(harbour)):
            pass


async def test_the_server_owns_what_it_has_opened(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.api.service.registry.LOCK_S", 0.1)
    async with client(effort="minimal") as http:
        with Collection.open(collection_path(harbour)):
            response = await http.post("/v1/search", json={"query": "yard"})
            assert str(collection_path(harbour)) not in check_error(response, 409, "collection_locked")
        answers = await asyncio.gather(*(http.post("/v1/search", json={"query": "yard"}) for _ in range(8)))
        assert {answer.status_code for answer in answers} == {200}
    with Collection.open(collection_path(harbour)):  # given back when the server stops
        pass


async def test_a_collection_that_is_being_exchanged_answers_try_again(
    harbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thresher.api.service.registry.PATIENCE_S", 0.1)
    app = create_app(Settings(collection="harbour", chroma="in-process"), policy=scripted)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        with app.state.registry.closed(harbour, "restore"):
            response = await http.post("/v1/search", json={"query": "yard", "effort": "minimal"})
        assert check_error(response, 503, "collection_busy").startswith("collection 'harbour' is in use (restore)")
        assert int(response.headers["retry-after"]) >= 0
        assert (await http.post("/v1/search", json={"query": "yard", "effort": "minimal"})).status_code == 200


async def test_request_ids(harbour: str) -> None:
    async with client() as http:
        first, second = await http.get("/healthz"), await http.get("/healthz")
        assert first.headers["x-request-id"] != second.headers["x-request-id"]
        echoed = await http.get("/healthz", headers={"X-Request-ID": "abc-123"})
        assert echoed.headers["x-request-id"] == "abc-123"
        replaced = await http.get("/healthz", headers={"X-Request-ID": "a b\t<script>"})
        assert replaced.headers["x-request-id"].startswith("req_")


async def test_bugs_do_not_leak(harbour: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Collection) -> ScriptedPolicy:
        raise RuntimeError("secret detail")

    with caplog.at_level(logging.ERROR):
        async with client(policy=broken) as http:
            response = await http.post("/v1/search", json={"query": "x"})
    message = check_error(response, 500, "internal_error")
    assert "secret" not in message + response.text
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/srv/x"), 503, "io_error", "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/srv/x"), 503, "io_error", "Permission denied"),
        (OSError("odd: /srv/x"), 503, "io_error", "try again later"),
        (sqlite3.OperationalError("unable to open database file /srv/x"), 503, "io_error", "try again later"),
        (StorageFull("no space left for /srv/x"), 503, "storage_full", "no space left"),
        (CollectionDamaged("/srv/x is damaged"), 500, "collection_damaged", "log says how to restore"),
        (TimeoutError(), 500, "internal_error", "log has the details"),
    ],
)
async def test_trouble_of_the_system_has_the_one_shape_and_names_no_path(
    harbour: str, caplog: pytest.LogCaptureFixture, error: Exception, status: int, code: str, message: str
) -> None:
    def broken(_: Collection) -> ScriptedPolicy:
        raise error

    with caplog.at_level(logging.ERROR):
        async with client(policy=broken) as http:
            response = await http.post("/v1/search", json={"query": "x"})
    assert message in check_error(response, status, code)
    assert "/srv" not in response.text
    assert str(error) in caplog.text


async def test_a_file_in_the_place_of_a_collection_names_no_path(harbour: str, thresher_home: Path) -> None:
    (collection_path(harbour) / "corpus.db").unlink()
    (collection_path(harbour) / "corpus.db").mkdir()
    async with client() as http:
        response = await http.post("/v1/search", json={"query": "x"})
    assert response.status_code in (500, 503)
    assert str(thresher_home) not in check_error(response, response.status_code, response.json()["error"]["code"])


async def test_a_trace_that_cannot_be_saved_only_warns(harbour: str, thresher_home: Path) -> None:
    (thresher_home / "traces").write_text("in the way")
    async with client(policy=scripted) as http:
        response = await http.post("/v1/search", json={"query": QUESTION})
    body = response.json()
    assert (response.status_code, body["status"], body["stop_reason"]) == (200, "completed", "finished")
    assert [warning for warning in body["warnings"] if "the trace could not be saved: File exists" in warning]
    assert str(thresher_home) not in response.text


@pytest.mark.parametrize(("edits", "prunes"), [({}, "removed"), ({"edits": "immediate"}, "removed")])
async def test_prunes_are_applied_at_once(harbour: str, edits: dict[str, str], prunes: str) -> None:
    assert await prune_receipt(edits) == {prunes}


async def test_batched_prunes_wait(harbour: str) -> None:
    assert await prune_receipt({"edits": "batched"}) == {"deferred"}


async def prune_receipt(edits: dict[str, str]) -> set[str]:
    """Which of the two a prune did, by its receipt."""
    async with client(policy=scripted) as http:
        body = (await http.post("/v1/search", json={"query": QUESTION, "include_trace": True, **edits})).json()
    assert body["stop_reason"] == "finished"
    [receipt] = [
        observation["receipt"]
        for turn in body["trajectory"]["turns"]
        for observation in turn["observations"]
        if observation["receipt"]
    ]
    return {key for key in ("removed", "deferred") if receipt.get(key)}


async def test_results_from_a_pdf_name_the_page(pdf_collection: str) -> None:
    async with client(collection=pdf_collection, effort="minimal") as http:
        results = (await http.post("/v1/search", json={"query": "findings of the inquiry"})).json()["results"]
    pages: dict[str, set[int | None]] = {result["document_id"]: set() for result in results}
    for result in results:
        pages[result["document_id"]].add(result["page"])
    assert pages.pop("note.txt") == {None}
    [found] = pages.values()
    assert found <= {1, 2, 3, 4}
    assert len(found) > 1


async def test_large_bodies_are_refused_unread(harbour: str) -> None:
    async with client(max_body_bytes=2_048, effort="minimal") as http:
        check_error(await http.post("/v1/search", json={"query": "x" * 3_000}), 413, "body_too_large")

        async def chunks() -> AsyncIterator[bytes]:  # no Content-Length: has to be counted
            for _ in range(4):
                yield b" " * 1_000

        headers = {"Content-Type": "application/json"}
        check_error(await http.post("/v1/search", content=chunks(), headers=headers), 413, "body_too_large")
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200


async def test_a_key_is_required_where_one_is_set(harbour: str) -> None:
    async with client(host="search.example", api_key="s3cret") as http:
        body = {"query": "yard", "effort": "minimal"}
        response = await http.post("/v1/search", json=body)
        check_error(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        for wrong in ({"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}, {"X-API-Key": "s3cre"}):
            check_error(await http.post("/v1/search", json=body, headers=wrong), 401, "unauthorized")
        check_error(await http.get("/nowhere"), 401, "unauthorized")
        check_error(await http.get("/openapi.json"), 401, "unauthorized")
        check_error(await http.post("/v1/search", json=body, headers=[(b"X-API-Key", b"\xe9")]), 401, "unauthorized")
        for right in ({"Authorization": "Bearer s3cret"}, {"authorization": "bearer s3cret"}, {"X-API-Key": "s3cret"}):
            assert (await http.post("/v1/search", json=body, headers=right)).status_code == 200
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("blank", ["", " \t"])
async def test_a_blank_key_is_no_key(harbour: str, blank: str) -> None:
    with pytest.raises(ValidationError, match="the key is blank"):
        Settings(api_key=blank)
    unchecked = Settings.model_construct(host="0.0.0.0", api_key=SecretStr(blank))
    with pytest.raises(ConfigError, match="THRESHER_API_KEY"):
        create_app(unchecked)

    app = create_app(Settings.model_construct(api_key=SecretStr(blank)))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://search.example") as http:
        for header in ({"X-API-Key": blank}, {"Authorization": f"Bearer {blank}"}, {}):
            check_error(await http.get("/openapi.json", headers=header), 421, "host_not_allowed")


async def test_an_empty_header_is_no_key(harbour: str) -> None:
    async with client(api_key="s3cret") as http:
        for header in ({"X-API-Key": ""}, {"Authorization": "Bearer "}, {"Authorization": ""}):
            check_error(await http.get("/openapi.json", headers=header), 401, "unauthorized")


async def test_without_a_key_only_local_names_are_answered(harbour: str) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]"):
        async with client(host=host) as http:
            assert (await http.get("/openapi.json")).status_code == 200
    async with client(host="attacker.example") as http:
        check_error(await http.get("/openapi.json"), 421, "host_not_allowed")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "search.example"])
def test_other_addresses_need_a_key(host: str) -> None:
    with pytest.raises(ConfigError, match="THRESHER_API_KEY"):
        create_app(Settings(host=host))
    create_app(Settings(host=host, api_key="k"))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_a_client_that_leaves_ends_its_search(harbour: str, thresher_home: Path) -> None:
    searching = asyncio.Event()

    class Endless:
        name = "endless"

        async def decide(self, view: View) -> Decision:
            searching.set()
            await asyncio.sleep(3_600)
            raise AssertionError("unreachable")

    app = create_app(Settings(collection=harbour), policy=lambda _: Endless())
    body = json.dumps({"query": QUESTION}).encode()
    messages: Iterator[dict[str, Any]] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await searching.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/search",
        "raw_path": b"/v1/search",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": None,
        "server": None,
        "scheme": "http",
    }
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope, receive, send), 30)  # type: ignore[arg-type]
    [trace] = (thresher_home / "traces").iterdir()
    assert json.loads(trace.read_text())["stop_reason"] == "cancelled"
