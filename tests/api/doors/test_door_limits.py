"""Limits, hang-ups and the operator's reranker, as the clients of all doors meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from door_support import ENDLESS, FOUNDER, HARBOUR, KEY, TEXTS, fill
from face_support import wait_until
from keyed_support import bearer, make_key
from live_support import live_server

from thresher.api.http.doors import chat_stream
from thresher.api.http.doors import cohere as rerank_door

openai = pytest.importorskip("openai")
tavily = pytest.importorskip("tavily")
perplexity = pytest.importorskip("perplexity")
cohere = pytest.importorskip("cohere")

DOCUMENTS = ["Bananas ripen.", "The founder of the Brask works was Edda Brask.", "The yard stood in Port Ellin."]


def _openai(url: str, key: str) -> None:
    messages = [{"role": "user", "content": FOUNDER}]
    with openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0) as client:
        client.chat.completions.create(model="thresher-minimal", messages=messages)


def _tavily(url: str, key: str) -> None:
    with tavily.TavilyClient(api_key=key, api_base_url=f"{url}/tavily") as client:
        client.search(FOUNDER, search_depth="fast")


def _perplexity(url: str, key: str) -> None:
    with perplexity.Perplexity(api_key=key, base_url=f"{url}/perplexity", max_retries=0) as client:
        client.search.create(query=FOUNDER)


def _cohere(url: str, key: str) -> None:
    with cohere.ClientV2(api_key=key, base_url=url) as client:
        options = {"max_retries": 0}
        client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS, request_options=options)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (_openai, openai.RateLimitError),
        (_tavily, tavily.UsageLimitExceededError),
        (_perplexity, perplexity.RateLimitError),
        (_cohere, cohere.TooManyRequestsError),
    ],
)
def test_a_key_at_its_rate(door: Any, call: Callable[[str, str], None], error: type[Exception]) -> None:
    key = make_key(requests_per_minute=1)

    def often() -> None:
        for _ in range(5):  # however many it may send in one go
            call(door.url, key)

    with pytest.raises(error, match="this key may send 1 requests a minute"):
        often()


@pytest.mark.parametrize("call", [_openai, _tavily, _perplexity, _cohere])
def test_a_key_without_the_scope_is_told_which(door: Any, call: Callable[[str, str], None]) -> None:
    from thresher.api.service.principal import Scope

    forbidden = (
        openai.PermissionDeniedError,
        tavily.errors.ForbiddenError,
        perplexity.PermissionDeniedError,
        cohere.ForbiddenError,
    )
    with pytest.raises(forbidden, match="lacks the scope 'search'"):
        call(door.url, make_key(scopes=[Scope.WRITE]))


def _status(url: str, search_id: str) -> str:
    return str(httpx.get(f"{url}/v1/searches/{search_id}", headers=bearer(KEY)).json()["status"])


def test_a_stream_that_nobody_reads_any_more_ends_its_search(door: Any) -> None:
    with openai.OpenAI(api_key=KEY, base_url=f"{door.url}/v1", max_retries=0) as client:
        stream = client.chat.completions.create(
            model=f"thresher:{ENDLESS}", messages=[{"role": "user", "content": FOUNDER}], stream=True
        )
        search_id = next(stream).id.removeprefix("chatcmpl-")
        assert _status(door.url, search_id) == "running"
        stream.close()
    wait_until(lambda: _status(door.url, search_id) == "cancelled", "cancelled")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "thresher", "messages": [{"role": "user", "content": "hang-up"}]}),
        ("/tavily/search", {"query": "hang-up"}),
        ("/search", {"query": "hang-up"}),
        ("/perplexity/search", {"query": ["hang-up", "hang-up too"]}),
    ],
)
def test_a_client_that_hangs_up_ends_its_search(door: Any, path: str, body: dict[str, Any]) -> None:
    def statuses() -> list[str]:
        listed = httpx.get(f"{door.url}/v1/searches", headers=bearer(KEY), params={"limit": 2}).json()["data"]
        return [item["status"] for item in listed if item["query"].startswith("hang-up")]

    body = {**body, "thresher": {"collections": [ENDLESS]}}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{door.url}{path}", json=body, headers=bearer(KEY), timeout=0.5)
    wait_until(lambda: set(statuses()) == {"cancelled"}, "cancelled")


def test_a_stream_without_news_is_kept_alive(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_stream, "KEEP_ALIVE_S", 0.05)
    body = {
        "model": f"thresher:{ENDLESS}",
        "messages": [{"role": "user", "content": FOUNDER}],
        "stream": True,
        "thresher": {"deadline_s": 0.5},
    }
    response = httpx.post(f"{door.url}/v1/chat/completions", json=body, headers=bearer(KEY))
    assert response.text.count("\n\n: keep-alive\n\n") >= 2
    assert "The search was not done" in response.text
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.fixture(scope="module")
def with_reranker(door: Any) -> Iterator[str]:
    """A server without a key, whose operator has named a reranker: the rerank door of the other one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THRESHER_RERANK_KEY", KEY)
        fill("quay", TEXTS)
        with live_server(collection="quay", reranker=f"endpoint:any@{door.url}/v1") as url:
            yield url


def test_the_operators_reranker_scores(door: Any, with_reranker: str) -> None:
    answers = []
    for url in (door.url, with_reranker):
        with cohere.ClientV2(api_key=KEY, base_url=url) as client:
            answers.append(client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS))
    own, asked = answers
    assert [(r.index, r.relevance_score) for r in asked.results] == [(r.index, r.relevance_score) for r in own.results]
    assert asked.meta.warnings == ["scored by endpoint:any; the model 'x' of the request was not used"]


def test_a_reranker_that_fails_is_an_error(door: Any) -> None:
    broken = live_server(reranker=f"endpoint:any@{door.url}/v3")
    with broken as url, pytest.raises(cohere.core.ApiError, match="refused to rerank 3 texts") as failed:
        _cohere(url, "any")
    assert failed.value.status_code == 502
    assert failed.value.body["message"] == failed.value.body["error"]["message"]


def test_a_server_without_a_key_takes_whatever_clients_must_send(with_reranker: str) -> None:
    for call in (_openai, _tavily, _perplexity, _cohere):
        call(with_reranker, "sk-of-elsewhere")
    with pytest.raises(openai.AuthenticationError, match="no key of this server"):
        _openai(with_reranker, make_key()[:-1] + "x")  # but what may be a key of ours is looked at


def test_reranks_do_not_pile_up(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerank_door, "WAITING", 0)
    with pytest.raises(cohere.TooManyRequestsError, match="wait already; try again in a moment"):
        _cohere(door.url, KEY)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "thresher", "messages": [{"role": "user", "content": "x"}]}),
        ("/tavily/search", {"query": "x"}),
        ("/tavily/extract", {"urls": "brask.md"}),
        ("/search", {"query": "x"}),
        ("/extract", {"urls": "brask.md"}),
        ("/perplexity/search", {"query": "x"}),
    ],
)
def test_what_another_tenant_has_is_like_what_nobody_has(door: Any, path: str, body: dict[str, Any]) -> None:
    told = []
    for name in (HARBOUR, "nowhere"):
        sent = {**body, "thresher": {"collections": [name]}}
        response = httpx.post(f"{door.url}{path}", json=sent, headers=bearer(door.foreign_key))
        error = response.json()["error"]
        assert error["code"] == "collection_not_found"
        told.append((response.status_code, error["message"].replace(name, "…"), sorted(response.json())))
    assert told[0] == told[1]
