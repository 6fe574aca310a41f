"""Requests that are sent twice and count once."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from keyed_support import bearer, code_of, keyed, make_key, settle
from live_support import live_server
from search_support import QUESTION, Gate, frames, scripted, serving

from thresher.api.errors import ApiError
from thresher.api.service.database import Database
from thresher.api.service.idempotency import KEPT_S, Idempotency, fingerprint
from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy

SEARCH = {"query": QUESTION}
KEY = {"Idempotency-Key": "0b4e4a5e-8f5e-4a52-93d0-8d3a1b0e7c11"}


async def test_the_same_key_and_body_are_one_search(harbour: str) -> None:
    made = 0

    def counting(collection: Collection) -> ScriptedPolicy:
        nonlocal made
        made += 1
        return scripted(collection)

    async with serving(counting) as (http, _):
        body = {**SEARCH, "include_trace": True}
        first = await http.post("/v1/search", json=body, headers=KEY)
        second = await http.post("/v1/search", json=body, headers=KEY)
        assert first.status_code == second.status_code == 200
        assert first.json() == second.json()
        other = await http.post("/v1/search", json=body, headers={"Idempotency-Key": "another"})
        without = await http.post("/v1/search", json=body)
        assert len({first.json()["id"], other.json()["id"], without.json()["id"]}) == 3
    assert made == 3
    async with serving(counting) as (http, _):  # it outlives the server
        assert (await http.post("/v1/search", json=body, headers=KEY)).json() == first.json()
    assert made == 3


async def test_a_body_that_says_the_same_is_the_same(harbour: str) -> None:
    async with serving() as (http, _):
        first = await http.post("/v1/search", json={**SEARCH, "filters": None}, headers=KEY)
        second = await http.post("/v1/search", json={"edits": "immediate", **SEARCH}, headers=KEY)
    assert first.json() == second.json()


@pytest.mark.parametrize("body", [{"query": "another"}, {**SEARCH, "max_results": 3}, {**SEARCH, "background": True}])
async def test_another_body_under_the_same_key_is_refused(harbour: str, body: dict[str, Any]) -> None:
    async with serving() as (http, _):
        assert (await http.post("/v1/search", json=SEARCH, headers=KEY)).status_code == 200
        refused = await http.post("/v1/search", json=body, headers=KEY)
        assert (refused.status_code, code_of(refused)) == (422, "idempotency_mismatch")
        assert refused.json()["error"]["param"] == "Idempotency-Key"
        assert len((await http.get("/v1/searches")).json()["data"]) == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "\u00e9", "x" * 256])
async def test_a_key_is_visible_characters(harbour: str, key: str) -> None:
    async with serving() as (http, _):
        headers = [(b"idempotency-key", key.encode("latin-1"))]
        refused = await http.post("/v1/search", json=SEARCH, headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (422, "Idempotency-Key")
        headers = [(b"idempotency-key", b"x" * 255)]
        assert (await http.post("/v1/search", json=SEARCH, headers=headers)).status_code == 200


async def test_a_second_request_joins_the_search_that_runs(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        first = asyncio.create_task(http.post("/v1/search", json=SEARCH, headers=KEY))
        await gate.came()
        second = asyncio.create_task(http.post("/v1/search", json=SEARCH, headers=KEY))
        mismatch = await http.post("/v1/search", json={"query": "another"}, headers=KEY)
        assert code_of(mismatch) == "idempotency_mismatch"
        gate.opened.set()
        answers = [response.json() for response in await asyncio.gather(first, second)]
    assert answers[0] == answers[1]
    assert gate.order == [QUESTION]


async def test_a_background_search_and_its_stream_are_joined_too(harbour: str) -> None:
    async with serving() as (http, _):
        body = {**SEARCH, "background": True, "stream": True}
        told = []
        for _ in range(2):
            async with http.stream("POST", "/v1/search", json=body, headers=KEY) as response:
                told.append([frame async for frame in frames(response)])
        assert told[0] == told[1]
        assert told[0][-1].event == "search.completed"
        plain = {**SEARCH, "background": True}
        first = await http.post("/v1/search", json=plain, headers={"Idempotency-Key": "plain"})
        await http.get(f"/v1/searches/{first.json()['id']}/events")
        second = await http.post("/v1/search", json=plain, headers={"Idempotency-Key": "plain"})
        assert (first.json()["id"], second.status_code) == (second.json()["id"], 202)
        assert second.json()["status"] == "completed"


async def test_a_client_that_hangs_up_finds_its_search_under_its_key(harbour: str) -> None:
    """Without a key its search would have been cancelled."""
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post("/v1/search", json=SEARCH, headers=KEY, timeout=httpx.Timeout(60, read=2.0))
            await gate.came()
            gate.opened.set()
            found = (await http.post("/v1/search", json=SEARCH, headers=KEY)).json()
    assert (found["status"], found["stop_reason"]) == ("completed", "finished")
    assert gate.order == [QUESTION]


async def test_what_was_refused_leaves_the_key_free(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, max_searches=1) as (http, _):
        refused = await http.post("/v1/search", json={**SEARCH, "collections": ["nowhere"]}, headers=KEY)
        assert refused.status_code == 404
        running = asyncio.create_task(http.post("/v1/search", json=SEARCH))
        await gate.came()
        refused = await http.post("/v1/search", json=SEARCH, headers=KEY)
        assert (refused.status_code, code_of(refused)) == (429, "too_many_searches")
        gate.opened.set()
        await running
        assert (await http.post("/v1/search", json={"query": "founder"}, headers=KEY)).status_code == 200


async def test_a_search_that_broke_is_tried_again(harbour: str) -> None:
    policies: list[Any] = [RuntimeError("once"), None]

    def flaky(collection: Collection) -> ScriptedPolicy:
        error = policies.pop(0)
        if error is not None:
            raise error
        return scripted(collection)

    async with serving(flaky) as (http, _):
        assert (await http.post("/v1/search", json=SEARCH, headers=KEY)).status_code == 500
        assert (await http.post("/v1/search", json=SEARCH, headers=KEY)).json()["status"] == "completed"


async def test_a_deleted_search_gives_its_key_back(harbour: str) -> None:
    async with serving() as (http, _):
        first = (await http.post("/v1/search", json=SEARCH, headers=KEY)).json()
        await http.delete(f"/v1/searches/{first['id']}")
        second = (await http.post("/v1/search", json=SEARCH, headers=KEY)).json()
        assert second["id"] != first["id"]
        assert (await http.post("/v1/search", json=SEARCH, headers=KEY)).json() == second


async def test_keys_are_those_of_a_tenant(harbour_template: Path) -> None:
    for tenant in ("alpha", "beta"):
        settle(harbour_template, f"{tenant}/harbour")
    async with keyed(policy=scripted) as http:
        ids = set()
        for tenant in ("alpha", "beta"):
            headers = {**bearer(make_key(name=tenant, tenant=tenant)), **KEY}
            body = {**SEARCH, "query": f"{tenant} asks: {QUESTION}"}
            ids.add((await http.post("/v1/search", json=body, headers=headers)).json()["id"])
    assert len(ids) == 2


async def test_keys_are_kept_for_a_day(harbour: str) -> None:
    async with serving() as (http, parts):
        first = (await http.post("/v1/search", json=SEARCH, headers=KEY)).json()
        with parts.database.write() as connection:
            connection.execute("UPDATE idempotency SET created = created - ?", (KEPT_S - 60,))
        assert (await http.post("/v1/search", json=SEARCH, headers=KEY)).json() == first
        with parts.database.write() as connection:
            connection.execute("UPDATE idempotency SET created = created - 120")
        assert (await http.post("/v1/search", json={"query": "founder"}, headers=KEY)).json()["id"] != first["id"]


async def test_short_requests_are_made_once(tmp_path: Path) -> None:
    """What routes that answer at once use: the response itself is kept."""
    made: list[str] = []
    gate = asyncio.Event()

    async def make() -> dict[str, Any]:
        made.append("made")
        await gate.wait()
        return {"made": len(made)}

    request = fingerprint("PUT /x", {"a": 1})
    with closing(Database(tmp_path / "server.db")) as database:
        table = Idempotency(database)
        waiting = [asyncio.create_task(table.once("", "k", request, make)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="used for another request"):
            await table.once("", "k", fingerprint("PUT /x", {"a": 2}), make)
        gate.set()
        assert await asyncio.gather(*waiting) == [{"made": 1}] * 3
        assert await Idempotency(database).once("", "k", request, make) == {"made": 1}
        assert await table.once("other", "k", request, make) == {"made": 2}

        async def broken() -> dict[str, Any]:
            raise RuntimeError("no")

        for _ in range(2):
            with pytest.raises(RuntimeError):
                await table.once("", "broken", request, broken)
        assert await table.once("", "broken", request, make) == {"made": 3}


async def test_a_response_that_was_never_kept_is_made_again(tmp_path: Path) -> None:
    """A server was killed between the claim and the response."""
    request = fingerprint("PUT /x", {})

    async def make() -> str:
        return "made"

    with closing(Database(tmp_path / "server.db")) as database:
        assert Idempotency(database).claim("", "k", request, "response") == "response"
        assert await Idempotency(database).once("", "k", request, make) == "made"


def test_fingerprints_do_not_depend_on_the_order_of_fields() -> None:
    assert fingerprint("r", {"a": 1, "b": [1, 2]}) == fingerprint("r", {"b": [1, 2], "a": 1})
    assert len({fingerprint("r", {"a": 1}), fingerprint("r", {"a": 2}), fingerprint("s", {"a": 1})}) == 3
    assert fingerprint("r", {"a": "\ud800"})
