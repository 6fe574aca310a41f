"""Searches that go on whoever listens: found again, followed, queued, cancelled, deleted and forgotten."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import wait_until
from keyed_support import bearer, code_of, keyed, make_key, settle
from live_support import live_server
from search_support import QUESTION, Frame, Gate, frames, serving

from thresher.api.service.principal import LOCAL
from thresher.api.service.searching import searches
from thresher.api.service.searching.bodies import SearchBody
from thresher.corpus.collection import Collection
from thresher.corpus.paths import collection_path

BACKGROUND = {"query": QUESTION, "background": True}
PLAIN = {"query": "yard", "effort": "minimal"}


async def ended(http: httpx.AsyncClient, search_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """A search when it has ended: its events end with it."""
    response = await http.get(f"/v1/searches/{search_id}/events", headers=headers)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = (await http.get(f"/v1/searches/{search_id}", headers=headers)).json()
    return body


async def events(http: httpx.AsyncClient, search_id: str, *, after: int | None = None, last: str = "") -> list[Frame]:
    params = {} if after is None else {"after": after}
    headers = {"Last-Event-ID": last} if last else {}
    async with http.stream("GET", f"/v1/searches/{search_id}/events", params=params, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in frames(response)]


async def test_a_background_search_is_found_again(harbour: str) -> None:
    async with serving() as (http, _):
        response = await http.post("/v1/search", json=BACKGROUND)
        assert response.status_code == 202
        started = response.json()
        assert started["object"] == "search"
        assert started["status"] in ("queued", "running")
        assert started["background"] is True
        assert started["collections"] == ["harbour"]
        assert abs(started["created_at"] - time.time()) < 60
        assert (started["results"], started["answer"], started["stop_reason"]) == ([], None, None)
        found = await ended(http, started["id"])
    assert (found["status"], found["stop_reason"], found["sufficient"]) == ("completed", "finished", True)
    assert found["created_at"] == started["created_at"]
    assert [result["document_id"] for result in found["results"]] == ["brask.md"]


async def test_events_are_kept_and_read_from_anywhere(harbour: str) -> None:
    async with serving() as (http, _):
        started = (await http.post("/v1/search", json=BACKGROUND)).json()
        live = await events(http, started["id"])
        kept = await events(http, started["id"])
        assert kept == live
        assert [frame.id for frame in live] == list(range(1, len(live) + 1))
        assert await events(http, started["id"], after=4) == live[4:]
        assert await events(http, started["id"], last="4") == live[4:]
        assert await events(http, started["id"], after=2, last="4") == live[2:]
        assert await events(http, started["id"], after=10**9) == []
        assert live[-1].data["response"] == (await http.get(f"/v1/searches/{started['id']}")).json()
        for wrong in ("x", "-1", "1.5", "9" * 40, "²"):
            headers = [(b"last-event-id", wrong.encode("latin-1"))]
            refused = await http.get(f"/v1/searches/{started['id']}/events", headers=headers)
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, "Last-Event-ID")


async def test_a_stream_that_breaks_is_picked_up_where_it_was(harbour: str) -> None:
    gate = Gate()
    with live_server(policy=gate.policy) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            had: list[Frame] = []
            async with http.stream("POST", "/v1/search", json={**BACKGROUND, "stream": True}) as response:
                told = frames(response)
                while not had or had[-1].event != "tool.result":
                    had.append(await anext(told))
            await gate.came()  # the listener is gone, the search is not
            search_id = had[0].data["search_id"]
            assert (await http.get(f"/v1/searches/{search_id}")).json()["status"] == "running"
            gate.opened.set()
            rest = await events(http, search_id, last=str(had[-1].id))
    assert [frame.id for frame in had + rest] == list(range(1, len(had + rest) + 1))
    assert rest[-1].data["response"]["status"] == "completed"


async def test_too_many_searches_are_refused_and_background_ones_wait(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, max_searches=1) as (http, parts):
        first = (await http.post("/v1/search", json=BACKGROUND)).json()
        await gate.came()
        refused = await http.post("/v1/search", json=PLAIN)
        assert (refused.status_code, code_of(refused)) == (429, "too_many_searches")
        assert int(refused.headers["retry-after"]) >= 1
        second = (await http.post("/v1/search", json={**BACKGROUND, "query": "second"})).json()
        assert second["status"] == "queued"
        assert parts.searches.waiting == 1
        gate.opened.set()
        assert (await ended(http, first["id"]))["status"] == "completed"
        told = await events(http, second["id"])
        assert [frame.event for frame in told][:2] == ["search.queued", "search.created"]
        assert (await ended(http, second["id"]))["status"] == "completed"
        assert (await http.post("/v1/search", json=PLAIN)).status_code == 200


async def test_background_searches_leave_places_to_others(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, max_searches=4) as (http, parts):
        for _ in range(5):
            await http.post("/v1/search", json=BACKGROUND)
        await gate.came(3)
        assert (parts.searches.active, parts.searches.waiting) == (3, 2)
        assert (await http.post("/v1/search", json=PLAIN)).status_code == 200
        gate.opened.set()


async def test_the_queue_is_fair_between_tenants(harbour_template: Path) -> None:
    gate = Gate()
    keys = {}
    for tenant in ("alpha", "beta"):
        settle(harbour_template, f"{tenant}/harbour")
        keys[tenant] = bearer(make_key(name=tenant, tenant=tenant))
    async with keyed(policy=gate.policy, max_searches=1) as http:
        asked = [("alpha", "a1"), ("alpha", "a2"), ("alpha", "a3"), ("beta", "b1"), ("beta", "b2")]
        ids = {}
        for tenant, query in asked:
            body = {"query": f"{query} founder", "background": True}
            ids[query] = (tenant, (await http.post("/v1/search", json=body, headers=keys[tenant])).json()["id"])
        await gate.came()
        gate.opened.set()
        for tenant, search_id in ids.values():
            assert (await ended(http, search_id, keys[tenant]))["status"] == "completed"
    assert [query.split()[0] for query in gate.order] == ["a1", "a2", "b1", "a3", "b2"]


async def test_a_running_search_is_cancelled_with_what_it_has(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        started = (await http.post("/v1/search", json=BACKGROUND)).json()
        await gate.came()
        response = await http.post(f"/v1/searches/{started['id']}/cancel")
        assert response.status_code == 200
        cancelled = response.json()
        assert (cancelled["status"], cancelled["stop_reason"]) == ("cancelled", "cancelled")
        assert cancelled["results"]
        again = await http.post(f"/v1/searches/{started['id']}/cancel")
        assert again.json() == cancelled == (await http.get(f"/v1/searches/{started['id']}")).json()
        assert (await events(http, started["id"]))[-1].event == "search.completed"


async def test_a_queued_search_is_cancelled_before_it_begins(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, max_searches=1) as (http, _):
        await http.post("/v1/search", json=BACKGROUND)
        await gate.came()
        second = (await http.post("/v1/search", json={**BACKGROUND, "query": "second"})).json()
        cancelled = (await http.post(f"/v1/searches/{second['id']}/cancel")).json()
        assert (cancelled["status"], cancelled["results"]) == ("cancelled", [])
        assert [frame.event for frame in await events(http, second["id"])] == ["search.queued", "search.completed"]
        gate.opened.set()
    assert gate.order == [QUESTION]


async def test_a_search_that_has_ended_is_not_cancelled(harbour: str) -> None:
    async with serving() as (http, _):
        done = (await http.post("/v1/search", json={"query": QUESTION})).json()
        assert (await http.post(f"/v1/searches/{done['id']}/cancel")).json() == done


async def test_a_deleted_search_leaves_nothing(harbour: str, thresher_home: Path) -> None:
    async with serving() as (http, parts):
        done = (await http.post("/v1/search", json={"query": QUESTION, "include_answer": True})).json()
        place = f"/v1/searches/{done['id']}"
        await http.post(f"{place}/feedback", json={"rating": "up", "comment": "a private word"})
        assert len(list((thresher_home / "traces").iterdir())) == 2
        response = await http.delete(place)
        assert response.json() == {"id": done["id"], "object": "search.deleted", "deleted": True}
        for request in (http.get(place), http.delete(place), http.get(f"{place}/trace"), http.get(f"{place}/events")):
            assert code_of(await request) == "search_not_found"
        assert list((thresher_home / "traces").iterdir()) == []
        with parts.database.read() as connection:
            for table in ("searches", "feedback"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0


async def test_deleting_a_running_search_ends_it(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, parts):
        started = (await http.post("/v1/search", json=BACKGROUND)).json()
        await gate.came()
        assert (await http.delete(f"/v1/searches/{started['id']}")).status_code == 200
        assert parts.searches.active == 0
        assert (await http.get(f"/v1/searches/{started['id']}")).status_code == 404


async def test_traces_are_read_as_data_and_as_a_page(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        started = (await http.post("/v1/search", json=BACKGROUND)).json()
        await gate.came()
        place = f"/v1/searches/{started['id']}/trace"
        early = await http.get(place)
        assert (early.status_code, code_of(early)) == (409, "search_running")
        gate.opened.set()
        await ended(http, started["id"])
        trace = (await http.get(place)).json()
        assert (trace["id"], len(trace["turns"])) == (started["id"], 2)
        page = await http.get(place, params={"format": "html"})
        assert page.headers["content-type"].startswith("text/html")
        assert "Edda Brask" in page.text
        plain = (await http.post("/v1/search", json=PLAIN)).json()
        assert code_of(await http.get(f"/v1/searches/{plain['id']}/trace")) == "trace_not_found"
        assert (await http.get(place, params={"format": "pdf"})).status_code == 422


async def test_a_trace_that_was_asked_for_is_there_later_too(harbour: str) -> None:
    async with serving() as (http, parts):
        done = (await http.post("/v1/search", json={"query": QUESTION, "include_trace": True})).json()
        assert len(done["trajectory"]["turns"]) == 3
        assert (await http.get(f"/v1/searches/{done['id']}")).json() == done
        with parts.database.read() as connection:  # it is kept once, in its file
            (stored,) = connection.execute("SELECT response FROM searches").fetchone()
        assert "turns" not in stored.partition('"usage"')[2].partition('"trajectory"')[2]


async def test_nobody_reaches_what_is_another_tenants(harbour_template: Path) -> None:
    for tenant in ("alpha", "beta"):
        settle(harbour_template, f"{tenant}/harbour")
    mine, theirs = (bearer(make_key(name=tenant, tenant=tenant)) for tenant in ("alpha", "beta"))
    gate = Gate()
    async with keyed(policy=gate.policy, save_traces=True) as http:
        done = (await http.post("/v1/search", json=PLAIN, headers=mine)).json()
        going = (await http.post("/v1/search", json=BACKGROUND, headers=mine)).json()
        await gate.came()
        for search_id in (done["id"], going["id"]):
            for method, path, body in (
                ("GET", "", None),
                ("DELETE", "", None),
                ("POST", "/cancel", None),
                ("GET", "/events", None),
                ("GET", "/trace", None),
                ("GET", "/trace?format=html", None),
                ("POST", "/feedback", {"rating": "up"}),
            ):
                there = await http.request(method, f"/v1/searches/{search_id}{path}", json=body, headers=theirs)
                unknown = await http.request(method, f"/v1/searches/search_none{path}", json=body, headers=theirs)
                assert there.status_code == unknown.status_code == 404
                told, of_none = there.json()["error"], unknown.json()["error"]
                assert told["message"].replace(search_id, "search_none") == of_none["message"]
                assert told["code"] == of_none["code"] == "search_not_found"
        assert (await http.get("/v1/searches", headers=theirs)).json()["data"] == []
        assert {each["id"] for each in (await http.get("/v1/searches", headers=mine)).json()["data"]} == {
            done["id"],
            going["id"],
        }
        assert (await http.get(f"/v1/searches/{going['id']}", headers=mine)).json()["status"] == "running"
        gate.opened.set()


async def test_searches_are_listed_newest_first(harbour: str) -> None:
    async with serving() as (http, _):
        ids = [(await http.post("/v1/search", json={**PLAIN, "query": f"yard {n}"})).json()["id"] for n in range(5)]
        first = (await http.get("/v1/searches", params={"limit": 2})).json()
        assert (first["object"], first["has_more"]) == ("list", True)
        assert [each["id"] for each in first["data"]] == [ids[4], ids[3]]
        assert {"status": "completed", "query": "yard 4", "collections": ["harbour"]}.items() <= first["data"][
            0
        ].items()
        second = (await http.get("/v1/searches", params={"limit": 2, "after": first["next"]})).json()
        last = (await http.get("/v1/searches", params={"limit": 2, "after": second["next"]})).json()
        assert [each["id"] for each in second["data"] + last["data"]] == [ids[2], ids[1], ids[0]]
        assert (last["has_more"], last["next"]) == (False, None)
        for wrong in ("x", "", "W10", "bnVsbA", "WzEsMl0", "WzEuMCwiXHVkODAwIl0", "\u00e9"):
            refused = await http.get("/v1/searches", params={"after": wrong})
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, "after")
        for limit in (0, 101):
            assert (await http.get("/v1/searches", params={"limit": limit})).status_code == 422


async def test_old_searches_and_too_many_are_forgotten(harbour: str) -> None:
    async with serving() as (http, parts):
        ids = [(await http.post("/v1/search", json=PLAIN)).json()["id"] for _ in range(5)]
        with parts.database.write() as connection:
            connection.execute("UPDATE searches SET ended = ended - 3 * 86400 WHERE id = ?", (ids[4],))
    async with serving(keep_searches_days=2, keep_searches=3) as (http, _):
        left = [each["id"] for each in (await http.get("/v1/searches")).json()["data"]]
    assert left == [ids[3], ids[2], ids[1]]


async def test_deadlines_are_bounded_by_the_server(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, max_deadline_s=1.0) as (http, _):
        assert (await http.post("/v1/search", json=PLAIN)).status_code == 200  # the collection is open now
        body = (await http.post("/v1/search", json={"query": QUESTION})).json()
        assert (body["status"], body["stop_reason"]) == ("partial", "deadline")
        assert body["results"]
        refused = await http.post("/v1/search", json={**PLAIN, "deadline_s": 1.1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (422, "deadline_s")


async def test_opening_a_collection_counts_into_the_deadline(harbour: str) -> None:
    async with serving() as (http, parts):
        with parts.registry.closed(harbour, "restore"):
            body = (await http.post("/v1/search", json={"query": QUESTION, "deadline_s": 0.2})).json()
    assert (body["status"], body["stop_reason"], body["results"]) == ("partial", "deadline", [])


async def test_a_result_outlives_a_database_that_cannot_be_written(
    harbour: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with serving(gate.policy) as (_, parts):
        running = await parts.searches.start(LOCAL, SearchBody(query=QUESTION))
        await gate.came()
        with parts.database.write() as connection:
            connection.execute("DROP TABLE searches")
        gate.opened.set()
        assert (await running.result()).status == "completed"
    assert "cannot be kept yet: no such table" in caplog.text


async def test_how_a_search_ended_is_kept_as_soon_as_the_database_can_be_written(
    harbour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "LOOK_EVERY_S", 0.05)
    gate = Gate()
    async with serving(gate.policy) as (http, parts):
        search_id = (await http.post("/v1/search", json=BACKGROUND)).json()["id"]
        await gate.came()
        with closing(sqlite3.connect(parts.database.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # another process is writing, and takes its time
            gate.opened.set()
            found = await ended(http, search_id)
            assert found["status"] == "completed"
            assert parts.searches.running(LOCAL, search_id) is not None
            other.execute("ROLLBACK")
        await asyncio.to_thread(wait_until, lambda: parts.searches.running(LOCAL, search_id) is None, "kept")
        assert (await http.get(f"/v1/searches/{search_id}")).json() == found


async def test_a_server_that_stops_lets_searches_end_or_leaves_them_to_the_next(
    harbour: str, thresher_home: Path
) -> None:
    gate = Gate()
    async with serving(gate.policy, max_searches=4) as (http, parts):
        searches = parts.searches
        foreground = await searches.start(LOCAL, SearchBody(query="foreground"))
        background = [await searches.start(LOCAL, SearchBody(query=f"background {n}", background=True)) for n in "1234"]
        await gate.came(4)
        assert searches.waiting == 1
        listening = asyncio.create_task(anext_all(background[0].events()))
        await searches.close(0.05)
        seen = await foreground.result()
        assert (seen.status, seen.stop_reason) == ("partial", "cancelled")
        assert seen.results
        told = [each.type for each in await listening]  # an end without an end
        assert told[0] == "search.created"
        assert not {"search.completed", "search.failed"} & set(told)
        refused = await http.post("/v1/search", json=PLAIN)
        assert (refused.status_code, code_of(refused)) == (503, "stopping")
        with parts.database.read() as connection:
            rows = connection.execute("SELECT status, owner FROM searches WHERE background").fetchall()
        assert {tuple(row) for row in rows} == {("queued", None)}
    with Collection.open(collection_path(harbour)):  # nothing holds it any more
        pass
    gate.opened.set()
    async with serving(gate.policy) as (http, parts):
        for each in background:
            assert (await ended(http, each.id))["status"] == "completed"
        assert len((await http.get(f"/v1/searches/{background[0].id}/trace")).json()["turns"]) == 2
        assert [len(path.read_text().splitlines()) for path in (thresher_home / "traces").iterdir()] == [1] * 5
        again = await events(http, background[0].id, last="3")
        assert (again[0].event, again[0].data["attempt"]) == ("search.restarted", 2)
        assert again[0].id > 1_000_000
        assert (await http.get(f"/v1/searches/{foreground.id}")).json()["status"] == "partial"


async def anext_all(told: Any) -> list[Any]:
    return [each async for each in told]


async def test_only_what_a_dead_server_left_is_taken_over(harbour: str, thresher_home: Path) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        started = (await http.post("/v1/search", json=BACKGROUND)).json()
        await gate.came()
        async with serving(gate.policy) as (other, _):
            there = (await other.get(f"/v1/searches/{started['id']}")).json()
            assert there["status"] == "running"
            refused = await other.post(f"/v1/searches/{started['id']}/cancel")
            assert (refused.status_code, code_of(refused)) == (409, "search_elsewhere")
            following = asyncio.create_task(events(other, started["id"]))
            gate.opened.set()
            assert (await ended(http, started["id"]))["status"] == "completed"
            assert (await following)[-1].data["response"]["status"] == "completed"
    assert len(gate.order) == 1
    assert list((thresher_home / "run").glob("*.owner")) == []
