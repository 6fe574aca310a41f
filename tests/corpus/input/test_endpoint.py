"""The embeddings endpoint against a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from queue_server import Answer, QueueServer

from thresher.corpus.embedders import load_embedder
from thresher.corpus.embedders.endpoint import EndpointEmbedder
from thresher.corpus.errors import EmbedderError


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 1.0]


def good(body: dict[str, Any]) -> Answer:
    # In reverse: the order of `data` means nothing, `index` does.
    data = [{"index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])]
    return 200, {"data": data[::-1]}, {}


class Server(QueueServer):
    def embedder(self, **options: Any) -> EndpointEmbedder:
        return EndpointEmbedder("model@2", self.url, sleep=self.waits.append, **options)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with (running := Server(good)).running():
        yield running


def test_embeds_in_batches_and_keeps_the_order(server: Server) -> None:
    texts = [f"text {number}" for number in range(250)]
    embedder = server.embedder(batch_size=100)
    vectors = embedder.embed_passages(texts)
    expected = np.array([vector(text) for text in texts])
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-5)
    assert sorted(len(request["input"]) for request in server.requests) == [1, 50, 100, 100]
    assert {request["model"] for request in server.requests} == {"model@2"}


def test_spec_and_info(server: Server) -> None:
    embedder = load_embedder(f"openai:org/model@2@{server.url}")
    assert (embedder.info.spec, embedder.info.dimension) == (f"openai:org/model@2@{server.url}", 3)
    embedder.embed_queries(["a"])
    assert len(server.requests) == 2, "the dimension is asked for once"


def test_the_key_is_sent_as_a_bearer_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "second")
    monkeypatch.setenv("THRESHER_EMBEDDINGS_KEY", "first")
    server.embedder().embed_queries(["a"])
    assert server.headers[-1]["authorization"] == "Bearer first"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_servers_are_asked_again(server: Server, status: int) -> None:
    embedder = server.embedder()
    embedder.embed_queries(["warm"])
    server.replies = [(status, "busy", {}), (status, "busy", {})]
    assert embedder.embed_queries(["a"]).shape == (1, 3)
    assert len(server.waits) == 2
    assert server.waits[1] > server.waits[0], "the wait grows"


def test_retry_after_is_heeded(server: Server) -> None:
    server.replies = [(429, "slow down", {"retry-after": "7"})]
    server.embedder().embed_queries(["a"])
    assert server.waits == [7.0]


def test_a_broken_connection_is_retried(server: Server) -> None:
    server.replies = [(200, "", {"content-length": "5", "connection": "close"})]
    with pytest.raises(EmbedderError):
        server.embedder(attempts=1).embed_queries(["a"])
    assert server.embedder().embed_queries(["a"]).shape == (1, 3)


def test_gives_up_after_the_attempts(server: Server) -> None:
    server.always = lambda body: (503, "down for maintenance", {})
    with pytest.raises(EmbedderError, match=r"after 3 attempts.*down for maintenance"):
        server.embedder(attempts=3).embed_queries(["a"])
    assert len(server.requests) == 3


def test_nobody_listens() -> None:
    embedder = EndpointEmbedder("m", "http://127.0.0.1:9/v1", attempts=2, sleep=lambda seconds: None)
    with pytest.raises(EmbedderError, match="no answer"):
        embedder.embed_queries(["a"])


def test_a_wrong_key_is_not_retried(server: Server) -> None:
    server.replies = [(401, "bad key", {})]
    with pytest.raises(EmbedderError, match="OPENAI_API_KEY"):
        server.embedder().embed_queries(["a"])
    assert len(server.requests) == 1


def test_a_refused_request_is_not_retried(server: Server) -> None:
    server.replies = [(404, "no such model", {})]
    with pytest.raises(EmbedderError, match="no such model"):
        server.embedder().embed_queries(["a"])
    assert len(server.requests) == 1


def test_a_batch_that_is_too_large_is_halved(server: Server) -> None:
    server.always = lambda body: good(body) if len(body["input"]) <= 8 else (413, "batch too large", {})
    texts = [f"text {number}" for number in range(30)]
    vectors = server.embedder(batch_size=30).embed_passages(texts)
    assert vectors.shape == (30, 3)
    assert float(vectors[29] @ server.embedder().embed_queries([texts[29]])[0]) > 0.99999


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"index": 0, "embedding": [1.0, 2.0, 3.0]}], "1 vectors for 2 texts"),
        ([{"index": 0, "embedding": [1.0, 0, 0]}, {"index": 0, "embedding": [1.0, 0, 0]}], "for 2 texts"),
        ([{"index": 0, "embedding": [1.0, 0, 0, 0]}, {"index": 1, "embedding": [1.0, 0, 0, 0]}], r"shape \(2, 4\)"),
        ([{"index": 0, "embedding": [1.0, 0, 0]}, {"index": 1, "embedding": [1.0]}], "equally long"),
        ([{"index": 0, "embedding": [0, 0, 0]}, {"index": 1, "embedding": [1.0, 0, 0]}], "all-zero"),
        ([{"index": 0, "embedding": [float("nan"), 0, 0]}, {"index": 1, "embedding": [1.0, 0, 0]}], "NaN"),
        ([{"vector": [1.0]}, {"vector": [1.0]}], "OpenAI embeddings format"),
    ],
)
def test_wrong_answers_are_refused(server: Server, data: list[dict[str, Any]], message: str) -> None:
    embedder = server.embedder()
    embedder.embed_queries(["warm"])
    server.replies = [(200, {"data": data}, {})]
    with pytest.raises(EmbedderError, match=message):
        embedder.embed_passages(["a", "b"])


def test_an_answer_that_is_not_json_is_refused(server: Server) -> None:
    server.replies = [(200, "<html>login</html>", {})]
    with pytest.raises(EmbedderError, match="login"):
        server.embedder().embed_queries(["a"])
