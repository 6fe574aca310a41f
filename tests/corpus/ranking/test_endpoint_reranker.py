"""The rerank endpoint against a real HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from queue_server import Answer, QueueServer

from thresher.corpus.errors import RerankError
from thresher.corpus.retrieval.rerank import load_reranker
from thresher.corpus.retrieval.rerank.endpoint import EndpointReranker

TEXTS = ["one", "three", "seventeen"]


def score(text: str) -> float:
    return len(text) / 10


def cohere(body: dict[str, Any]) -> Answer:
    found = [{"index": i, "relevance_score": score(text)} for i, text in enumerate(body["documents"])]
    return 200, {"id": "x", "results": sorted(found, key=lambda item: -item["relevance_score"])}, {}


def voyage(body: dict[str, Any]) -> Answer:
    return 200, {"object": "list", "data": cohere(body)[1]["results"]}, {}


def tei(body: dict[str, Any]) -> Answer:
    if "texts" not in body:
        return 422, "Failed to deserialize the JSON body: missing field `texts` at line 1", {}
    found = [{"index": i, "score": score(text)} for i, text in enumerate(body["texts"])]
    return 200, sorted(found, key=lambda item: -item["score"]), {}


class Server(QueueServer):
    def reranker(self, **options: Any) -> EndpointReranker:
        return EndpointReranker("model@2", self.url, sleep=self.waits.append, **options)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("THRESHER_RERANK_KEY", raising=False)
    with (running := Server(cohere)).running():
        yield running


@pytest.mark.parametrize("form", [cohere, voyage, tei])
def test_scores_come_back_in_the_order_of_the_texts(server: Server, form: Callable[[dict[str, Any]], Answer]) -> None:
    server.always = form
    reranker = server.reranker()
    assert reranker.scores("how many?", TEXTS) == [0.3, 0.5, 0.9]
    assert server.requests[0] == {"model": "model@2", "query": "how many?", "documents": TEXTS, "top_n": 3}
    assert set(server.paths) == {"/v1/rerank"}
    assert "authorization" not in server.headers[0]
    before = len(server.requests)
    assert reranker.scores("again", TEXTS[:1]) == [0.3]
    assert len(server.requests) == before + 1  # what kind of server it is was learned once
    assert reranker.scores("nothing", []) == []
    assert len(server.requests) == before + 1
    reranker.close()


def test_the_spec_names_model_and_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_RERANK_KEY", " sesame ")
    reranker = load_reranker(f"endpoint:org/model@2@{server.url}/rerank")
    assert reranker.spec == f"endpoint:org/model@2@{server.url}/rerank"
    assert reranker.scores("q", ["lone \ud800 surrogate"]) == [score("lone ? surrogate")]
    assert server.paths == ["/v1/rerank"]
    assert server.requests[0]["model"] == "org/model@2"
    assert server.headers[0]["authorization"] == "Bearer sesame"
    for wrong in ("endpoint:", "endpoint:model", "endpoint:@http://x", "endpoint:m@ftp://x", "endpoint:m@http://[x"):
        with pytest.raises(RerankError):
            load_reranker(wrong)
    monkeypatch.setenv("THRESHER_RERANK_KEY", "ключ")
    with pytest.raises(RerankError, match="no HTTP header"):
        load_reranker("endpoint:m@http://x")


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.replies = [(503, "loading", {}), (429, "slow down", {"retry-after": "1.5"})]
    assert server.reranker().scores("q", TEXTS) == [0.3, 0.5, 0.9]
    assert len(server.requests) == 3
    assert 0.3 < server.waits[0] < 1
    assert server.waits[1] == 1.5


def test_a_server_that_stays_down_is_given_up(server: Server) -> None:
    server.always = lambda body: (500, "no", {})
    with pytest.raises(RerankError, match=r"after 3 attempts, last: HTTP 500: no"):
        server.reranker().scores("q", TEXTS)
    assert len(server.requests) == 3
    server.delay_s = 0.5
    with pytest.raises(RerankError, match="Timeout"):
        server.reranker(timeout_s=0.1, attempts=1).scores("q", TEXTS)
    server.delay_s = 0.0


def test_nobody_there() -> None:
    reranker = EndpointReranker("m", "http://127.0.0.1:9/v1", attempts=2, sleep=lambda seconds: None)
    with pytest.raises(RerankError, match="after 2 attempts, last: no answer"):
        reranker.scores("q", ["x"])


@pytest.mark.parametrize(
    ("status", "says"), [(401, "THRESHER_RERANK_KEY"), (404, "refused to rerank"), (400, "no such")]
)
def test_a_refusal_is_final(server: Server, status: int, says: str) -> None:
    server.always = lambda body: (status, "no such model", {})
    with pytest.raises(RerankError, match=says):
        server.reranker().scores("q", TEXTS)
    assert len(server.requests) == 1


def result(*given: tuple[Any, Any]) -> Answer:
    return 200, {"results": [{"index": index, "relevance_score": value} for index, value in given]}, {}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (result((0, 0.1), (1, 0.2)), "2 scores"),
        (result((0, 0.1), (1, 0.2), (1, 0.3)), "2 of them for different texts"),
        (result((0, 0.1), (1, 0.2), (3, 0.3)), "each text needs one"),
        (result((0, 0.1), (1, 0.2), (2, 0.3), (2, 0.3)), "4 scores"),
        (result((0, 0.1), (1, 0.2), (-1, 0.3)), "each text needs one"),
        (result((0, 0.1), (1, None), (2, 0.3)), "no number"),
        (result((0, 0.1), (1, "high"), (2, 0.3)), "no number"),
        (result((0, 0.1), (True, 0.2), (2, 0.3)), "no number"),
        ((200, '{"results": [{"index": 0, "relevance_score": NaN}]}', {}), "1 scores"),
        (
            (
                200,
                '[{"index": 0, "score": NaN}, {"index": 1, "score": 1.0}, {"index": 2, "score": Infinity}]',
                {},
            ),
            "no finite number",
        ),
        ((200, {"answer": 42}, {}), "rerank format"),
        ((200, {"results": 7}, {}), "rerank format"),
        ((200, ["one", "two", "three"], {}), "rerank format"),
        ((200, "<html>", {}), "rerank format"),
        ((200, "", {}), "rerank format"),
    ],
)
def test_an_answer_that_is_no_ranking_of_the_texts_is_an_error(server: Server, answer: Answer, says: str) -> None:
    server.always = lambda body: answer
    with pytest.raises(RerankError, match=says):
        server.reranker().scores("q", TEXTS)
