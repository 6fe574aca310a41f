"""`/metrics`: what is counted, who may read it, and that its labels have a bound."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View


def scripted(_: Collection) -> ScriptedPolicy:
    def first(view: View) -> Decision:
        return Decision((ToolUse("search_corpus", {"query": "Brask"}),))

    def second(view: View) -> Decision:
        return Decision((ToolUse("finish", {"evidence_ids": ["c1"], "sufficient": True}),))

    return ScriptedPolicy([first, second])


@asynccontextmanager
async def client(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(**{"collection": "harbour", "chroma": "in-process", **settings}), policy=scripted)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8420") as made,
    ):
        yield made


async def figures(http: httpx.AsyncClient, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels."""
    response = await http.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def one(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


async def test_searches_and_requests_are_counted(harbour: str) -> None:
    async with client() as http:
        for effort in ("minimal", "minimal", "medium"):
            answered = await http.post("/v1/search", json={"query": "Who founded the Brask works?", "effort": effort})
            assert answered.status_code == 200, answered.text
        too_long = {"query": "Brask, Corran; Ellin? " * 360, "max_tokens": 4_096}  # it alone fills the context
        refused = await http.post("/v1/search", json=too_long)
        assert refused.status_code == 422
        found = await figures(http)
    ended = {"status": "completed", "stop_reason": "finished"}
    assert one(found, "thresher_searches_total", effort="minimal", **ended) == 2
    assert one(found, "thresher_searches_total", effort="medium", **ended) == 1
    assert one(found, "thresher_searches_total", effort="medium", status="refused", stop_reason="error") == 1
    assert one(found, "thresher_search_turns_sum", effort="medium") == 2
    assert one(found, "thresher_search_tokens_count", kind="prompt") == 1
    assert one(found, "thresher_search_tokens_sum", kind="prompt") > 0
    assert one(found, "thresher_search_seconds_count", effort="minimal") == 2
    assert one(found, "thresher_searches_in_flight", effort="minimal") == 0
    assert one(found, "thresher_searches_queued") == 0
    assert one(found, "thresher_collections_open") == 1
    route = {"method": "POST", "route": "/v1/search"}
    assert one(found, "thresher_http_requests_total", status="200", **route) == 3
    assert one(found, "thresher_http_requests_total", status="422", **route) == 1
    assert one(found, "thresher_http_request_seconds_count", **route) == 4
    assert one(found, "thresher_http_request_seconds_bucket", le="+Inf", **route) == 4
    assert one(found, "thresher_http_requests_in_flight") == 1  # this one
    assert found["process_resident_memory_bytes", ()] > 1_000_000
    assert found["process_open_fds", ()] > 3
    assert found["thresher_threads", ()] >= 1
    assert found["thresher_tasks", ()] >= 1


async def test_what_clients_send_makes_no_series(harbour: str) -> None:
    async with client() as http:
        await http.post("/v1/search", json={"query": "secret question", "effort": "minimal"})
        await figures(http)  # counts itself from the second time on
        before = set(await figures(http))
        for number in range(30):
            await http.get(f"/nowhere/{number}")
            await http.request(f"METHOD{number}", "/v1/search")
            await http.get(f"/v1/searches/search_{number}")
            await http.post("/v1/search", json={"query": f"question {number}", "collections": [f"none{number}"]})
        after = set(await figures(http))
    new = {labels for _, labels in after - before}
    assert 0 < len(new) < 120
    shown = json.dumps(sorted(map(str, after)))
    for told in ("secret question", "nowhere", "METHOD", "search_7", "none7"):
        assert told not in shown
    methods = {dict(labels).get("method") for labels in new}
    assert "other" in methods
    assert {"other"} <= {dict(labels).get("route") for labels in new}


async def test_every_route_has_a_name_of_its_own(harbour: str) -> None:
    async with client() as http:
        for path in ("/openapi.json", "/v1/searches/search_1", "/ui"):
            await http.get(path)
        found = await figures(http)
    seen = {dict(labels)["route"] for name, labels in found if name == "thresher_http_requests_total"}
    assert seen == {"/openapi.json", "/v1/searches/{search_id}", "/ui"}


async def test_jobs_are_counted_by_kind_and_status(harbour: str) -> None:
    async with client() as http:
        asked = await http.post("/v1/collections/harbour/verify")
        assert asked.status_code == 202, asked.text
        await http.get(f"/v1/jobs/{asked.json()['id']}/events")  # ends with the job
        assert one(await figures(http), "thresher_jobs", kind="verify", status="succeeded") == 1


async def test_two_applications_count_apart(harbour: str) -> None:
    async with client() as http:
        await http.get("/healthz")
        async with client() as other:
            found = await figures(other)
        route = {"method": "GET", "route": "/healthz", "status": "200"}
        assert ("thresher_http_requests_total", tuple(sorted(route.items()))) not in found
        assert one(await figures(http), "thresher_http_requests_total", **route) == 1


async def test_with_a_key_it_is_for_administrators(harbour: str) -> None:
    async with client(api_key=SecretStr("s3cret-key")) as http:
        assert (await http.get("/metrics")).status_code == 401
        found = await figures(http, authorization="Bearer s3cret-key")
        assert one(found, "thresher_http_rejected_total", reason="unauthorized") == 1


async def test_open_metrics_on_request(harbour: str) -> None:
    async with client() as http:
        response = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        assert response.text.endswith("# EOF\n")


async def test_too_large_a_body_is_counted_as_rejected(harbour: str) -> None:
    async with client(max_body_bytes=2_000) as http:
        assert (await http.post("/v1/search", content=b"x" * 3_000)).status_code == 413
        assert one(await figures(http), "thresher_http_rejected_total", reason="body_too_large") == 1


async def test_the_access_log_has_no_question_and_no_key(harbour: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "thresher.access"):
        async with client(api_key=SecretStr("s3cret-key")) as http:
            sent = await http.post(
                "/v1/search?q=hidden",
                json={"query": "hidden question", "effort": "minimal"},
                headers={"x-api-key": "s3cret-key"},
            )
            await http.get("/v1/%0Aforged")
            await http.get("/healthz")
    lines = [record for record in caplog.records if record.name == "thresher.access"]
    assert [record.levelname for record in lines] == ["INFO", "INFO", "DEBUG"]
    search, forged, _ = (record.__dict__["fields"] for record in lines)
    assert (search["method"], search["path"], search["status"]) == ("POST", "/v1/search", 200)
    assert search["request_id"] == sent.headers["x-request-id"]
    assert search["bytes"] == len(sent.content)
    assert forged["path"] == "/v1/%0Aforged"
    assert (forged["status"], forged["error"]) == (401, "unauthorized")
    told = json.dumps([record.__dict__["fields"] for record in lines]) + caplog.text
    assert "hidden" not in told
    assert "s3cret" not in told
