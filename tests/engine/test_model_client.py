"""The HTTP client of the model policies against a real server: what is tried again, what is refused, what is shown."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
import time
import warnings
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from stub_model import Reply, StubModel, serve_model

from thresher.engine.errors import InvalidRequest, ModelInterrupted, ModelRefused, ModelUnavailable
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.connections import proxy_for
from thresher.engine.policies.model.settings import DEFAULT_URL, ModelSettings, checked_url

KEY = "sk-very-secret-0123456789"
BODY = {"model": "stub", "messages": [{"role": "user", "content": "Wer baute die Fähre?"}]}
CHAT = "/chat/completions"


@pytest.fixture
def model() -> Iterator[StubModel]:
    with serve_model() as server:
        yield server


def client_of(model: StubModel, **settings: Any) -> ModelClient:
    return ModelClient(ModelSettings("stub", model.url, KEY, **{"first_wait_s": 0.0, **settings}))


async def events_of(
    client: ModelClient, seen: list[dict[str, Any]] | None = None, **options: Any
) -> list[dict[str, Any]]:
    seen = [] if seen is None else seen
    async for event in client.stream(CHAT, BODY, **options):
        seen.append(event)
    return seen


async def test_what_is_sent(model: StubModel) -> None:
    model.plays(Reply("Hello."))
    answer = await client_of(model).post(CHAT, BODY)
    assert answer["choices"][0]["message"]["content"] == "Hello."
    (request,) = model.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == BODY
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_a_login_in_the_address(model: StubModel) -> None:
    model.plays(Reply("Hello."))
    url = model.url.replace("//", "//ann:p%40ss@")
    await ModelClient(ModelSettings("stub", url)).post(CHAT, BODY)
    assert model.requests[0].headers["authorization"] == "Basic YW5uOnBAc3M="
    assert "ann" not in model.requests[0].headers["host"]


async def test_a_compressed_answer(model: StubModel) -> None:
    content = gzip.compress(b'{"choices": []}')
    model.plays(
        Reply(raw=content, headers={"Content-Encoding": "gzip"}),
        Reply(raw=content[:-9] + b"broken...", headers={"Content-Encoding": "gzip"}),
        Reply(raw=b"{}"),
    )
    assert await client_of(model).post(CHAT, BODY) == {"choices": []}
    assert await client_of(model).post(CHAT, BODY) == {}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520, 529])
async def test_statuses_that_are_tried_again(model: StubModel, status: int) -> None:
    retries: list[str] = []
    model.plays(Reply(status=status, error="not now"), Reply("Now."))
    answer = await client_of(model).post(CHAT, BODY, on_retry=retries.append)
    assert answer["choices"][0]["message"]["content"] == "Now."
    (retry,) = retries
    assert str(status) in retry
    assert "not now" in retry


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 422, 501, 505])
async def test_statuses_that_are_not(model: StubModel, status: int) -> None:
    model.plays(Reply(status=status, error="no"), Reply("never sent"))
    with pytest.raises(ModelRefused) as caught:
        await client_of(model).post(CHAT, BODY)
    assert caught.value.status == status
    assert caught.value.reason.startswith("no")
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
    ],
)
async def test_what_will_fail_again_is_refused_at_once(model: StubModel, status: int, body: dict[str, Any]) -> None:
    model.plays(Reply(status=status, raw=json.dumps(body).encode()), Reply("never sent"))
    with pytest.raises(ModelRefused):
        await client_of(model).post(CHAT, BODY)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "bad",
    [
        Reply(raw=b'{"choices": [{"mess'),
        Reply(raw=b"<html>504 Gateway</html>"),
        Reply(raw=b"[1, 2]"),
        Reply(raw=b""),
        Reply("cut short", cut_after=40),
        Reply(raw=b'{"error": {"message": "engine is asleep", "code": 503}}'),
    ],
)
async def test_answers_that_are_none_are_asked_for_again(model: StubModel, bad: Reply) -> None:
    retries: list[str] = []
    model.plays(bad, Reply("Now."))
    answer = await client_of(model).post(CHAT, BODY, on_retry=retries.append)
    assert answer["choices"][0]["message"]["content"] == "Now."
    assert len(retries) == 1


async def test_a_server_that_stays_away(model: StubModel) -> None:
    model.always = Reply(status=503, error="loading")
    with pytest.raises(ModelUnavailable, match="after 3 attempts") as caught:
        await client_of(model, attempts=3).post(CHAT, BODY)
    assert caught.value.status == 503
    assert len(model.requests) == 3


async def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    client = ModelClient(ModelSettings("stub", url, attempts=2, first_wait_s=0.0))
    with pytest.raises(ModelUnavailable, match="Check that it runs"):
        await client.post(CHAT, BODY)


async def test_a_server_that_says_nothing_is_given_up(model: StubModel) -> None:
    model.always = Reply(hang=True)
    retries: list[str] = []
    with pytest.raises(ModelUnavailable, match=r"within 0\.5 s"):
        await client_of(model, attempts=2, timeout_s=0.5).post(CHAT, BODY, on_retry=retries.append)
    assert len(retries) == 1
    assert all([await asyncio.to_thread(request.dropped.wait, 10) for request in model.requests])


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured(model: StubModel, form: str) -> None:
    asked = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    model.plays(Reply(status=429, error="slow down", headers={"Retry-After": asked}), Reply("Now."))
    await client_of(model).post(CHAT, BODY)
    first, second = model.requests
    assert second.at - first.at >= 0.9


async def test_who_asks_for_too_long_a_wait_gets_none(model: StubModel) -> None:
    model.plays(Reply(status=429, error="slow down", headers={"Retry-After": "3600"}))
    with pytest.raises(ModelUnavailable, match="asks to wait 3600 s"):
        await client_of(model).post(CHAT, BODY)


def test_waits_double_at_most_and_are_spread() -> None:
    client = ModelClient(ModelSettings("stub", DEFAULT_URL, first_wait_s=1.0, longest_wait_s=5.0))
    for attempt, most in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (9, 5.0)):
        waits = [client._wait(attempt, None) or 0.0 for _ in range(400)]
        assert 0 <= min(waits) < most * 0.2
        assert most * 0.8 < max(waits) <= most


async def test_the_key_is_never_shown(model: StubModel) -> None:
    settings = ModelSettings("stub", model.url.replace("//", "//user:pass-word-9@"), KEY, first_wait_s=0.0, attempts=2)
    client = ModelClient(settings)
    model.plays(Reply(status=401, error=f"Incorrect API key provided: {KEY}"))
    with pytest.raises(ModelRefused, match="THRESHER_MODEL_API_KEY") as refused:
        await client.post(CHAT, BODY)
    model.always = Reply(status=500, error=f"crash with {KEY} and pass-word-9")
    retries: list[str] = []
    with pytest.raises(ModelUnavailable) as unavailable:
        await client.post(CHAT, BODY, on_retry=retries.append)
    shown = f"{refused.value} {refused.value.reason} {unavailable.value} {retries} {settings!r} {client.where}"
    assert "***" in shown
    assert KEY not in shown
    assert "pass-word-9" not in shown.replace(settings.url or "", "")


async def test_a_stream_comes_as_it_is_written(model: StubModel) -> None:
    model.plays(Reply("Größe " * 40, piece=1))
    events = await events_of(client_of(model))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == "Größe " * 40
    assert model.bodies[0]["stream"] is True


async def test_a_stream_is_tried_again_until_it_begins(model: StubModel) -> None:
    retries: list[str] = []
    model.plays(Reply(status=500), Reply("x", cut_after=0), Reply("Now."))
    events = await events_of(client_of(model), on_retry=retries.append)
    assert len(events) > 1
    assert len(retries) == 2


async def test_a_stream_that_breaks_off(model: StubModel) -> None:
    model.plays(Reply("many words that are never said", cut_after=3), Reply("never sent"))
    seen: list[dict[str, Any]] = []
    with pytest.raises(ModelInterrupted, match="broke off"):
        await events_of(client_of(model), seen)
    assert len(seen) == 3
    assert len(model.requests) == 1


async def test_a_stream_that_ends_before_the_reply_does(model: StubModel) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": null}]}\n\n'
    model.plays(Reply(raw=event, headers={"Content-Type": "text/event-stream"}))
    with pytest.raises(ModelInterrupted, match="ended before"):
        await events_of(client_of(model))


async def test_a_stream_without_an_end_mark_ends(model: StubModel) -> None:
    model.plays(Reply("All of it.", done=False))
    events = await events_of(client_of(model))
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_server_that_does_not_stream(model: StubModel) -> None:
    model.plays(Reply(raw=json.dumps({"choices": [{"message": {"content": "whole"}}]}).encode()))
    (event,) = await events_of(client_of(model))
    assert event["choices"][0]["message"]["content"] == "whole"


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_closes_the_connection(model: StubModel, streamed: bool) -> None:
    model.plays(Reply("words " * 50, hang=not streamed, hang_after=3 if streamed else None))
    client = client_of(model)
    task = asyncio.ensure_future(events_of(client) if streamed else client.post(CHAT, BODY))
    assert await asyncio.to_thread(model.arrived.acquire, timeout=30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(model.requests[0].dropped.wait, 10)


async def test_closing_a_stream_early_closes_the_connection(model: StubModel) -> None:
    model.plays(Reply("words " * 50, hang_after=3))
    stream = client_of(model).stream(CHAT, BODY)
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(model.requests[0].dropped.wait, 10)


async def test_connections_are_used_again(model: StubModel) -> None:
    model.always = Reply("Hello.")
    client = client_of(model)
    for _ in range(5):
        await client.post(CHAT, BODY)
    assert model.connections == 1
    await client.aclose()
    await client.post(CHAT, BODY)
    assert model.connections == 2


async def test_idle_connections_are_closed_while_others_are_in_use(
    model: StubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thresher.engine.policies.model.client.IDLE_S", 0.01)
    model.always = Reply("Hello.")
    client = client_of(model)

    async def some() -> None:
        for pause in (0.0, 0.02, 0.0, 0.03):
            await asyncio.gather(*(client.post(CHAT, BODY) for _ in range(5)))
            await asyncio.sleep(pause)

    await asyncio.gather(*(some() for _ in range(8)))
    assert len(model.requests) == 160
    assert 40 <= model.connections < 160
    await client.aclose()


def test_event_loops_one_after_another(model: StubModel) -> None:
    model.always = Reply("Hello.")
    client = client_of(model)
    gc.collect()  # what other tests have left is not this one's
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(3):
            assert asyncio.run(client.post(CHAT, BODY))["choices"]
            gc.collect()
    assert not [str(w.message) for w in seen]  # a loop that ends takes its connections with it
    assert model.connections == 3
    assert len(client._loops) == 1


def test_event_loops_at_once(model: StubModel) -> None:
    model.always = Reply("Hello.")
    client = client_of(model)

    async def both() -> None:
        def elsewhere() -> dict[str, Any]:
            return asyncio.run(client.post(CHAT, BODY))

        answers = await asyncio.gather(
            *(asyncio.to_thread(elsewhere) for _ in range(4)), *(client.post(CHAT, BODY) for _ in range(4))
        )
        assert all(answer["choices"] for answer in answers)

    asyncio.run(both())


def test_proxies_are_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "no_proxy", "all_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert proxy_for("https", "api.example") == "http://proxy:3128"
    assert proxy_for("http", "api.example") is None
    assert proxy_for("https", "inside.example") is None
    assert proxy_for("https", "localhost") is None
    monkeypatch.setenv("ALL_PROXY", "proxy:3128")
    assert proxy_for("http", "api.example") == "http://proxy:3128"


async def test_a_proxy_of_the_environment_is_used(model: StubModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", model.url.removesuffix("/v1"))
    model.plays(Reply("Hello."))
    await ModelClient(ModelSettings("stub", "http://models.invalid/v1")).post(CHAT, BODY)
    assert model.requests[0].path == "http://models.invalid/v1/chat/completions"
    assert model.requests[0].headers["host"] == "models.invalid"


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("https://host/openai/v1/", "https://host/openai/v1"),
        ("https://host/v1/chat/completions", "https://host/v1"),
        (" http://[::1]:8000/v1 ", "http://[::1]:8000/v1"),
    ],
)
def test_addresses(given: str, becomes: str) -> None:
    assert checked_url(given) == becomes


@pytest.mark.parametrize(
    "given",
    [
        "localhost:8000",
        "ftp://host/v1",
        "http://",
        "http://host:port/v1",
        "http://[::1/v1",
        "https://host/v1?api-version=1",
    ],
)
def test_addresses_that_are_none(given: str) -> None:
    with pytest.raises(InvalidRequest, match=r"/v1|ends at its path") as caught:
        checked_url(given)
    assert caught.value.param == "url"


def test_settings_from_the_environment() -> None:
    both = {"OPENAI_BASE_URL": "http://two/v1", "OPENAI_API_KEY": "two"}
    own = {"THRESHER_MODEL_URL": "http://one/v1", "THRESHER_MODEL_API_KEY": "one", **both}
    assert ModelSettings().resolved({}).url == DEFAULT_URL
    assert ModelSettings().resolved({}).api_key is None
    settings = ModelSettings().resolved(both)
    assert (settings.url, settings.api_key) == ("http://two/v1", "two")
    settings = ModelSettings().resolved(own)
    assert (settings.url, settings.api_key) == ("http://one/v1", "one")
    settings = ModelSettings(url="http://three", api_key="three").resolved(own)
    assert (settings.url, settings.api_key) == ("http://three/v1", "three")


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"attempts": 0},
        {"timeout_s": 0.0},
        {"tools": "some"},
        {"max_reply_tokens": 0},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ModelSettings("stub", **wrong)
    assert caught.value.param == next(iter(wrong))
