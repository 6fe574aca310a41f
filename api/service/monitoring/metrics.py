"""What the server counts, for Prometheus.

Every label takes its values from a list that the code knows: no query, id, collection, tenant or path as a client wrote
it is ever one, so the number of series has a bound whatever clients send.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from thresher.api.service.database import Database
from thresher.engine.requests import SearchRequest, SearchResult

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
"""What a value is counted as that is none of those the code knows."""

REJECTIONS = {
    "body_too_large",
    "collection_busy",
    "host_not_allowed",
    "missing_scope",
    "origin_not_allowed",
    "rate_limited",
    "stopping",
    "too_many_searches",
    "unauthorized",
}
"""Codes of errors by which the server turns a request away for what it is, whatever it asked."""

_HTTP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SEARCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45, 90, 180, 300, 600)
_TURNS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_TOKENS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000, 4_000_000)

Counted = Callable[[], Mapping[tuple[str, ...], float]]
"""Asked at each scrape: a value by the values of the labels."""


class Metrics:
    """Counters, histograms and gauges of one application, in a registry of its own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("thresher_build", "What runs.", registry=self.registry).info({"version": version})
        threads = Gauge("thresher_threads", "Threads of the process.", registry=self.registry)
        threads.set_function(threading.active_count)

        self.tasks = Gauge("thresher_tasks", "Tasks of the event loop.", registry=self.registry)

        self._requests = Counter(
            "thresher_http_requests", "HTTP requests that ended.", ("method", "route", "status"), registry=self.registry
        )
        self._request_seconds = Histogram(
            "thresher_http_request_seconds",
            "From the first byte of a request to the last of its response, streams included.",
            ("method", "route"),
            buckets=_HTTP_SECONDS,
            registry=self.registry,
        )
        self.requests_in_flight = Gauge(
            "thresher_http_requests_in_flight", "HTTP requests under way.", registry=self.registry
        )
        self._rejected = Counter(
            "thresher_http_rejected",
            "Requests turned away: no key, too many, too large, …",
            ("reason",),
            registry=self.registry,
        )
        for reason in REJECTIONS:
            self._rejected.labels(reason)

        self._searches = Counter(
            "thresher_searches",
            "Searches that ended; one of several collections counts once in each.",
            ("effort", "status", "stop_reason"),
            registry=self.registry,
        )
        self._search_seconds = Histogram(
            "thresher_search_seconds",
            "How long searches took.",
            ("effort",),
            buckets=_SEARCH_SECONDS,
            registry=self.registry,
        )
        self._search_turns = Histogram(
            "thresher_search_turns", "Turns of a search, sub-agents and rollouts included.", ("effort",),
            buckets=_TURNS, registry=self.registry,
        )  # fmt: skip
        self._search_tokens = Histogram(
            "thresher_search_tokens", "Tokens that a search sent to its model, or had written by it.", ("kind",),
            buckets=_TOKENS, registry=self.registry,
        )  # fmt: skip
        self._model_seconds = Counter(
            "thresher_search_model_seconds", "Time spent in the policy.", registry=self.registry
        )
        self._recoveries = Counter(
            "thresher_search_recoveries",
            "Tool calls that could not be run as the model wrote them.",
            registry=self.registry,
        )
        self.searches_in_flight = Gauge(
            "thresher_searches_in_flight", "Searches that run now.", ("effort",), registry=self.registry
        )

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request. `route` is a template of the application (`/v1/jobs/{id}`), never a path."""
        method = method if method in METHODS else OTHER
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def request_rejected(self, code: str | None) -> None:
        """Count a request that was turned away, by the code of its error; other errors are not counted here."""
        if code in REJECTIONS:
            self._rejected.labels(code).inc()

    def search_ended(self, request: SearchRequest, result: SearchResult) -> None:
        """Count a search."""
        effort, usage = str(request.effort), result.usage
        self._searches.labels(effort, result.status, str(result.stop_reason)).inc()
        self._search_seconds.labels(effort).observe(usage.seconds)
        self._search_turns.labels(effort).observe(usage.turns)
        if usage.prompt_tokens:
            self._search_tokens.labels("prompt").observe(usage.prompt_tokens)
            self._search_tokens.labels("completion").observe(usage.completion_tokens)
        self._model_seconds.inc(usage.model_seconds)
        self._recoveries.inc(usage.recoveries)

    def search_raised(self, request: SearchRequest, *, expected: bool) -> None:
        """Count a search that could not be run: a request that was refused, or a failure."""
        self._searches.labels(str(request.effort), "refused" if expected else "failed", "error").inc()

    def gauge(self, name: str, documentation: str, labels: tuple[str, ...], counted: Counted) -> None:
        """A gauge whose values are asked for at each scrape. One that cannot be had is left out of that scrape."""
        self.registry.register(_Asked(name, documentation, labels, counted))

    def render(self, accept: str) -> tuple[bytes, str]:
        """All of it in the format that the `Accept` header asks for, and the content type of that."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


def jobs_counted(database: Database) -> Counted:
    """How many jobs of all tenants there are, by kind and status."""

    def count() -> dict[tuple[str, ...], float]:
        with database.read() as connection:
            rows = connection.execute("SELECT kind, status, count(*) FROM jobs GROUP BY kind, status").fetchall()
        return {(kind, status): float(number) for kind, status, number in rows}

    return count


class _Asked(Collector):
    def __init__(self, name: str, documentation: str, labels: tuple[str, ...], counted: Counted) -> None:
        self._name, self._documentation, self._labels, self._counted = name, documentation, labels, counted

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(self._name, self._documentation, labels=self._labels)]

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        with suppress(Exception):  # a database that is locked must not take all other figures down
            for values, value in self._counted().items():
                family.add_metric(list(values), value)
        yield family
