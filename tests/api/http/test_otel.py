"""OpenTelemetry: spans of requests, searches, turns and tools, in the caller's trace, without what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from thresher.api.config import Settings
from thresher.api.http import app as app_module
from thresher.api.http import create_app
from thresher.api.service.monitoring import tracing
from thresher.api.service.monitoring.tracing import Tracing, load_tracing
from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.swarm import ASSIGN_TASK, CREATE_SUBAGENT
from thresher.engine.tools import CorpusScope, corpus_tools
from thresher.engine.tools.added import OUR_TOOLS
from thresher.engine.tools.web import web_tools

QUESTION = "Who founded the Brask works?"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def scripted(_: Collection) -> ScriptedPolicy:
    def first(view: View) -> Decision:
        return Decision((ToolUse("search_corpus", {"query": "secret words"}), ToolUse("no such tool", {})))

    def second(view: View) -> Decision:
        return Decision((ToolUse("finish", {"evidence_ids": ["c1"], "sufficient": True}),))

    return ScriptedPolicy([first, second])


@asynccontextmanager
async def client(policy: Any = scripted) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(collection="harbour", chroma="in-process"), policy=policy)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8420") as made,
    ):
        yield made


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where the spans of applications go that are made in this test."""
    return _collected(monkeypatch, queries=False)


def _collected(monkeypatch: pytest.MonkeyPatch, *, queries: bool) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(app_module, "load_tracing", lambda *_, **__: Tracing(provider, queries=queries))
    return exporter


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_search_is_one_trace(harbour: str, spans: InMemorySpanExporter) -> None:
    async with client() as http:
        sent = await http.post("/v1/search", json={"query": QUESTION}, headers={"traceparent": TRACEPARENT})
        assert sent.status_code == 200, sent.text
    found = by_name(spans)
    assert {name: len(own) for name, own in found.items()} == {
        "POST /v1/search": 1,
        "search": 1,
        "turn": 2,
        "tool search_corpus": 1,
        "tool unknown": 1,
        "tool finish": 1,
    }
    [request], [search], turns = found["POST /v1/search"], found["search"], found["turn"]
    assert request.kind is SpanKind.SERVER
    assert request.parent is not None
    assert format(request.parent.span_id, "016x") == TRACEPARENT.split("-")[2]
    for span in spans.get_finished_spans():
        assert format(span.context.trace_id, "032x") == TRACEPARENT.split("-")[1]
        assert span.end_time is not None
        assert span.status.status_code is not StatusCode.ERROR
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/search",
        "http.response.status_code": 200,
    }
    assert _parent(search) == request.context.span_id
    assert {_parent(turn) for turn in turns} == {search.context.span_id}
    assert _parent(found["tool search_corpus"][0]) == turns[0].context.span_id
    assert _parent(found["tool finish"][0]) == turns[1].context.span_id
    about = attributes(search)
    assert about["thresher.search.id"] == sent.json()["id"]
    assert (about["thresher.search.status"], about["thresher.search.turns"]) == ("completed", 2)
    assert attributes(found["tool search_corpus"][0])["thresher.shown"] > 0
    assert attributes(found["tool unknown"][0])["thresher.outcome"] == "rejected"


def _parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


async def test_what_was_asked_is_in_no_span(harbour: str, spans: InMemorySpanExporter) -> None:
    async with client() as http:
        await http.post("/v1/search?hidden=1", json={"query": QUESTION})
    told = " ".join(span.to_json() for span in spans.get_finished_spans())
    for text in ("Brask", "secret words", "hidden", "no such tool"):
        assert text not in told


async def test_a_provider_of_the_process_is_used_and_told_once(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with client() as http:
        await http.post("/v1/search?hidden=1", json={"query": QUESTION})
    kinds = [span.kind for span in exporter.get_finished_spans()]
    assert kinds.count(SpanKind.SERVER) == 1  # and none of the framework's
    assert "hidden" not in " ".join(span.to_json() for span in exporter.get_finished_spans())


async def test_the_question_on_request(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = _collected(monkeypatch, queries=True)
    async with client() as http:
        await http.post("/v1/search", json={"query": QUESTION})
    [search] = by_name(exporter)["search"]
    assert attributes(search)["thresher.search.query"] == QUESTION


async def test_failures_are_marked(harbour: str, spans: InMemorySpanExporter) -> None:
    def broken(_: Collection) -> ScriptedPolicy:
        raise RuntimeError("the policy broke")

    async with client(broken) as http:
        assert (await http.post("/v1/search", json={"query": QUESTION})).status_code == 500
        assert (await http.get("/nowhere")).status_code == 404
    found = by_name(spans)
    for name in ("POST /v1/search", "search"):
        assert found[name][0].status.status_code is StatusCode.ERROR, name
    assert attributes(found["POST /v1/search"][0])["error.type"] == "internal_error"
    [missed] = found["GET other"]
    assert attributes(missed)["error.type"] == "route_not_found"
    assert missed.status.status_code is not StatusCode.ERROR


def test_spans_know_every_tool() -> None:
    names = {tool.name for tool in (*corpus_tools(CorpusScope(None, None)), *web_tools(None))}  # type: ignore[arg-type]
    assert names | {CREATE_SUBAGENT, ASSIGN_TASK} == OUR_TOOLS


def test_nothing_asked_for_is_nothing_done() -> None:
    assert load_tracing({}) is None
    assert load_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}) is None
    assert load_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}) is None
    assert load_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that takes spans over HTTP, and what it got."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_spans_reach_a_collector(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as (url, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        async with client() as http:
            assert (await http.post("/v1/search", json={"query": QUESTION})).status_code == 200
    [(path, content)] = got  # handed over when the application ended
    assert path == "/v1/traces"
    sent = ExportTraceServiceRequest.FromString(content)
    [resource] = sent.resource_spans
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about["service.name"] == "thresher"
    assert {span.name for scope in resource.scope_spans for span in scope.spans} > {"POST /v1/search", "search", "turn"}
    assert QUESTION not in json.dumps(str(sent))


async def test_a_collector_that_is_down_holds_nobody_up(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(tracing, "FLUSH_S", 0.1)
    async with client() as http:
        assert (await http.post("/v1/search", json={"query": QUESTION})).status_code == 200
