"""`POST /v1/search` with `stream`, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
from live_support import live_server
from search_support import QUESTION, Frame, Gate, frames, scripted

SEARCH = {"query": QUESTION, "stream": True}


@pytest.fixture
def harbour_live(harbour: str) -> Iterator[str]:
    with live_server(policy=scripted) as url:
        yield url


async def streamed(http: httpx.AsyncClient, body: dict[str, object] = SEARCH) -> list[Frame]:
    async with http.stream("POST", "/v1/search", json=body) as response:
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in frames(response)]


async def test_a_search_is_told_as_it_goes_on(harbour: str) -> None:
    with live_server(policy=scripted) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            async with http.stream("POST", "/v1/search", json=SEARCH) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                assert response.headers["cache-control"] == "no-store"
                assert response.headers["x-accel-buffering"] == "no"
                assert "content-length" not in response.headers
                told = [frame async for frame in frames(response)]
            kept = (await http.get(f"/v1/searches/{told[0].data['search_id']}")).json()
    assert [frame.id for frame in told] == list(range(1, len(told) + 1))
    kinds = [frame.event for frame in told]
    assert kinds[0] == "search.created"
    assert kinds[-1] == "search.completed"
    assert list(dict.fromkeys(kinds)) == [
        "search.created",
        "turn.started",
        "tool.called",
        "tool.result",
        "context.edited",
        "result.added",
        "search.completed",
    ]
    assert told[-1].data["response"] == kept
    assert (kept["status"], kept["stop_reason"], kept["sufficient"]) == ("completed", "finished", True)
    assert [(r["document_id"], r["collection"]) for r in kept["results"]] == [("brask.md", "harbour")]
    assert [citation["text"] for citation in kept["citations"]] == ["Edda Brask"]


async def test_events_show_passages_edits_and_the_budget(harbour: str) -> None:
    with live_server(policy=scripted) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            told = await streamed(http)
    first = next(frame.data for frame in told if frame.event == "turn.started")
    assert first["budget"] == {"total": 32_768, "soft": 16_384, "hard": 24_576}
    assert 0 < first["prompt_tokens"] < 32_768
    [found] = [frame.data for frame in told if frame.event == "tool.result" and frame.data["tool"] == "search_corpus"]
    assert {chunk["document_id"] for chunk in found["chunks"]} == {"ferry.md", "brask.md", "corran.md"}
    for chunk in found["chunks"]:
        assert set(chunk) == {"id", "document_id", "title", "tokens", "snippet"}
        assert chunk["tokens"] > 10
        assert 0 < len(chunk["snippet"]) <= 160
    assert {"Brask", "Corran", "Ferry"} == {chunk["title"] for chunk in found["chunks"]}
    spare = [chunk["id"] for chunk in found["chunks"] if chunk["document_id"] == "corran.md"]
    [edit] = [frame.data for frame in told if frame.event == "context.edited"]
    assert edit["removed"] == spare
    assert edit["restored"] == []
    assert edit["freed_tokens"] >= sum(c["tokens"] for c in found["chunks"] if c["id"] in spare) > 0
    assert edit["reprefill_tokens"] >= 0


async def test_every_frame_is_one_line_of_json(harbour: str) -> None:
    """Line breaks of any kind in the question must not end a frame early."""
    query = "one\ntwo\r\nthree\u2028four\x85five data: x"
    with live_server(policy=scripted) as url:
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            http.stream("POST", "/v1/search", json={"query": query, "stream": True, "effort": "minimal"}) as response,
        ):
            raw = (await response.aread()).decode()
    blocks = raw.split("\n\n")
    assert blocks.pop() == ""
    created = blocks[0].split("\n")
    assert created[:2] == ["event: search.created", "id: 1"]
    assert json.loads(created[2].removeprefix("data: "))["query"] == query
    assert {len(block.split("\n")) for block in blocks} == {3}
    assert raw.isascii()


async def test_events_come_while_the_search_runs(harbour: str) -> None:
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            http.stream("POST", "/v1/search", json=SEARCH) as response,
        ):
            told = frames(response)
            while (frame := await anext(told)).event != "tool.result":
                pass
            await gate.came()
            seen = (await http.get(f"/v1/searches/{frame.data['search_id']}")).json()
            assert (seen["status"], seen["results"], seen["stop_reason"]) == ("running", [], None)
            gate.opened.set()
            assert [frame.event async for frame in told][-1] == "search.completed"


async def test_a_silent_stream_says_that_it_lives(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.api.http.streaming.KEEP_ALIVE_S", 0.02)
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            http.stream("POST", "/v1/search", json=SEARCH) as response,
        ):
            told = frames(response)
            comments = 0
            while comments < 3:
                comments += (await anext(told)).comment == "keep-alive"
            gate.opened.set()
            rest = [frame async for frame in told]
    assert rest[-1].event == "search.completed"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"collections": ["nowhere"]}, 404, "collection_not_found"),
        ({"filters": {"type": "near", "key": "a", "value": 1}}, 422, "invalid_filter"),
        ({"query": "  "}, 422, "invalid_request"),
        ({"stream": "maybe"}, 422, "invalid_field"),
    ],
)
async def test_what_cannot_begin_is_an_ordinary_error(
    harbour_live: str, body: dict[str, object], status: int, code: str
) -> None:
    async with httpx.AsyncClient(base_url=harbour_live, timeout=60) as http:
        response = await http.post("/v1/search", json={**SEARCH, **body})
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == code
        assert (await http.get("/v1/searches")).json()["data"] == []


async def test_a_policy_that_breaks_at_its_start_ends_the_stream_with_the_error(harbour: str) -> None:
    def broken(_: object) -> object:
        raise RuntimeError("secret detail")

    with live_server(policy=broken) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            told = await streamed(http)
            kept = (await http.get(f"/v1/searches/{told[0].data['search_id']}")).json()
    assert [frame.event for frame in told] == ["search.created", "search.failed"]
    assert told[-1].data["response"] == kept
    assert (kept["status"], kept["error"]["code"]) == ("failed", "internal_error")
    assert "secret" not in json.dumps([frame.data for frame in told])


async def test_many_listeners_share_one_search(harbour: str) -> None:
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            started = (await http.post("/v1/search", json={"query": QUESTION, "background": True})).json()
            await gate.came()
            place = f"/v1/searches/{started['id']}/events"

            async def listen(after: int) -> list[Frame]:
                async with http.stream("GET", place, headers={"Last-Event-ID": str(after)}) as response:
                    return [frame async for frame in frames(response)]

            listening = [asyncio.create_task(listen(after)) for after in (0, 0, 2, 3)]
            async with http.stream("GET", place) as response:  # one that leaves
                assert (await anext(frames(response))).event == "search.created"
            gate.opened.set()
            whole, same, later, latest = await asyncio.gather(*listening)
    assert whole == same
    assert whole[-1].event == "search.completed"
    assert later == whole[2:]
    assert latest == whole[3:]
    assert gate.order == [QUESTION]


async def test_a_listener_that_leaves_ends_its_foreground_search(harbour: str) -> None:
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            async with http.stream("POST", "/v1/search", json=SEARCH) as response:
                told = frames(response)
                created = await anext(told)
                await gate.came()
            place = f"/v1/searches/{created.data['search_id']}"
            async with http.stream("GET", f"{place}/events") as response:
                last = [frame async for frame in frames(response)][-1]
            kept = (await http.get(place)).json()
    assert last.event == "search.completed"
    assert (kept["status"], kept["stop_reason"]) == ("cancelled", "cancelled")
    assert kept["results"]  # what it had found by then


async def test_a_deadline_ends_a_stream_with_what_was_found(harbour: str) -> None:
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            await streamed(http, {**SEARCH, "effort": "minimal"})  # the collection is open now
            told = await streamed(http, {**SEARCH, "deadline_s": 1.5})
    assert told[-1].event == "search.completed"
    response = told[-1].data["response"]
    assert (response["status"], response["stop_reason"]) == ("partial", "deadline")
    assert response["results"]
