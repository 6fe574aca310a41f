"""OpenTelemetry: spans for requests, searches, turns and tool calls, where the environment asks for them.

They are exported when a collector is named by the usual variables (OTEL_EXPORTER_OTLP_ENDPOINT, …), or when whoever
started the process has set a tracer provider. The question, the arguments of tools and what they found are in no span;
the setting `trace_queries` adds the question.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from thresher.engine.events import Event, EventType
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.tools.added import OUR_TOOLS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

logger = logging.getLogger("thresher.api")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
FLUSH_S = 3.0
"""How long a server that stops waits for the collector to take what is left."""


def load_tracing(environ: Mapping[str, str], *, queries: bool = False) -> Tracing | None:
    """What makes spans; None where nothing asks for them, or the packages are missing, which is then logged."""
    wanted = any(environ.get(name) for name in _ENDPOINTS) and environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        if wanted:
            logger.warning("no spans are exported: opentelemetry-sdk is not installed")
        return None
    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return Tracing(found, queries=queries)
    if not wanted:
        return None
    try:
        return Tracing(_provider(environ), queries=queries, owned=True)
    except ImportError as error:
        logger.warning("no spans are exported: install the exporter of this protocol (%s)", error)
        return None


def _provider(environ: Mapping[str, str]) -> TracerProvider:
    """A provider of our own: the process-wide one is not ours to set."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    exporter: SpanExporter
    if next((environ[name] for name in _PROTOCOLS if environ.get(name)), "grpc").startswith("http"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp

        exporter = OverHttp()
    else:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc

        exporter = OverGrpc()
    attributes = {"service.version": version("thresher")}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = "thresher"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class Tracing:
    """Makes spans of one provider. With `owned` it is shut down by `close`."""

    def __init__(self, provider: TracerProvider, *, queries: bool = False, owned: bool = False) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._queries = queries
        self._owned = owned
        self._tracer = provider.get_tracer("thresher", version("thresher"))
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[RequestSpan]:
        """The span of an HTTP request, which continues the trace of its `traceparent`, and is current meanwhile."""
        from opentelemetry.trace import SpanKind, use_span

        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        span = self._tracer.start_span(
            method, context=self._propagator.extract(carrier), kind=SpanKind.SERVER,
            attributes={"http.request.method": method},
        )  # fmt: skip
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield RequestSpan(span)

    @contextmanager
    def search(self, request: SearchRequest) -> Iterator[SearchSpans]:
        """The span of a search, below what is current, and what makes those of its turns and tool calls."""
        from opentelemetry.trace import use_span

        span = self._tracer.start_span("search", attributes={"thresher.search.effort": str(request.effort)})
        if self._queries:
            span.set_attribute("thresher.search.query", request.query)
        spans = SearchSpans(self._tracer, span)
        try:
            with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield spans
        except BaseException as error:
            _failed(span, type(error).__name__)
            raise
        finally:
            spans.close()
            span.end()

    def close(self) -> None:
        """Hand what is left to the collector, for a few seconds at most: it may be down."""
        stop = self._provider.shutdown if self._owned else self._provider.force_flush
        thread = threading.Thread(target=stop, name="otel-flush", daemon=True)
        thread.start()
        thread.join(FLUSH_S)


class RequestSpan:
    """The span of an HTTP request."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return format(self._span.get_span_context().trace_id, "032x")

    def ended(self, method: str, route: str, status: int, error: str | None) -> None:
        """Say what it was and how it ended; `error` is the code of the error, if there was one."""
        self._span.update_name(f"{method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status})
        if error is not None:
            self._span.set_attribute("error.type", error)
        if status >= 500:
            _failed(self._span, error or str(status))


class SearchSpans:
    """Makes spans of a search's events: a turn lasts until the agent's next one, a call until its result."""

    def __init__(self, tracer: Any, span: Span) -> None:
        from opentelemetry.trace import set_span_in_context

        self._in_context = set_span_in_context
        self._tracer = tracer
        self._span = span
        self._turns: dict[tuple[Any, Any], Span] = {}
        self._calls: dict[tuple[Any, Any, Any], Span] = {}

    def event(self, event: Event) -> None:
        """Take note of what the engine tells."""
        data = event.data
        agent = (data.get("rollout"), data.get("agent"))
        if event.type is EventType.SEARCH_CREATED:
            self._span.set_attribute("thresher.search.id", data["search_id"])
        elif event.type is EventType.TURN_STARTED:
            self._end_turn(agent)
            attributes = {"thresher.turn": data["turn"], "thresher.prompt_tokens": data["prompt_tokens"]}
            if data.get("agent"):
                attributes["thresher.agent"] = data["agent"]
            if data.get("rollout"):
                attributes["thresher.rollout"] = data["rollout"]
            self._turns[agent] = self._child("turn", self._span, attributes)
        elif event.type is EventType.TOOL_CALLED:
            name = tool_name(data["tool"])
            parent = self._turns.get(agent, self._span)
            self._calls[(*agent, data["id"])] = self._child(f"tool {name}", parent, {"thresher.tool": name})
        elif event.type is EventType.TOOL_RESULT:
            call = self._calls.pop((*agent, data["id"]), None)
            if call is not None:
                call.set_attributes({"thresher.outcome": data["outcome"], "thresher.shown": len(data["chunks"])})
                call.end()

    def ended(self, result: SearchResult) -> None:
        """Say how the search ended."""
        usage = result.usage
        self._span.set_attributes(
            {
                "thresher.search.status": result.status,
                "thresher.search.stop_reason": str(result.stop_reason),
                "thresher.search.results": len(result.results),
                "thresher.search.turns": usage.turns,
                "thresher.search.prompt_tokens": usage.prompt_tokens,
                "thresher.search.completion_tokens": usage.completion_tokens,
            }
        )
        if result.status == "failed":
            _failed(self._span, str(result.stop_reason))

    def close(self) -> None:
        """End what is still open: the last turns, and calls that were broken off."""
        for call in self._calls.values():
            call.end()
        for agent in list(self._turns):
            self._end_turn(agent)

    def _end_turn(self, agent: tuple[Any, Any]) -> None:
        turn = self._turns.pop(agent, None)
        if turn is not None:
            turn.end()

    def _child(self, name: str, parent: Span, attributes: dict[str, Any]) -> Span:
        span: Span = self._tracer.start_span(name, context=self._in_context(parent), attributes=attributes)
        return span


def _failed(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def tool_name(name: str) -> str:
    """The name of a tool as spans may have it: a model may call for one that does not exist, by any text.

    Those of plugins are `unknown`, too.
    """
    return name if name in OUR_TOOLS else "unknown"
