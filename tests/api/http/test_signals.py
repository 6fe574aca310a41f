"""`POST /v1/searches/{id}/signals`, and the signals that the server sees by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from keyed_support import bearer, code_of, keyed, make_key, settle
from search_support import Gate, serving

from thresher.api.http.parts import Parts
from thresher.api.service.collecting import marks
from thresher.api.service.collecting.collecting import production_store
from thresher.api.service.collecting.recent import KEPT, MAX_UNITS, OPENED_S, Recent
from thresher.api.service.principal import Scope
from thresher.train.production.reading import read
from thresher.train.production.reformulation import WITHIN_S

ASKED = "Who founded the Brask works?"
AGAIN = "founder of the Brask works in Holm"


async def search(http: httpx.AsyncClient, query: str = ASKED, **given: Any) -> dict[str, Any]:
    headers = given.pop("headers", {})
    response = await http.post("/v1/search", json={"query": query, "effort": "minimal", **given}, headers=headers)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def told(parts: Parts) -> list[tuple[str, str, Any]]:
    assert parts.searches.collecting is not None
    await parts.searches.collecting.settled()
    return [(signal.search_id, signal.kind, signal.value) for signal in production_store().signals()]


async def test_a_signal_is_kept_for_a_search_that_is_collected(harbour: str) -> None:
    async with serving(collect="consented") as (http, parts):
        found = await search(http, collect=True)
        first = found["results"][0]["id"]
        place = f"/v1/searches/{found['id']}/signals"
        for kind in ("opened", "cited"):
            response = await http.post(place, json={"kind": kind, "evidence_id": first})
            assert response.status_code == 201
            receipt = response.json()
            assert (receipt["object"], receipt["search_id"], receipt["kind"]) == ("signal", found["id"], kind)
            assert receipt["collected"] is True
        assert await told(parts) == [(found["id"], "opened", first), (found["id"], "cited", first)]
        [(record, signals)] = production_store().joined()
        assert read(record, signals).gold == (found["results"][0]["document_id"],)


@pytest.mark.parametrize(("setting", "asked"), [("off", True), ("consented", None), ("all", False)])
async def test_nothing_is_kept_for_a_search_that_is_not(harbour: str, setting: str, asked: bool | None) -> None:
    async with serving(collect=setting) as (http, parts):
        found = await search(http, collect=asked)
        response = await http.post(f"/v1/searches/{found['id']}/signals", json={"kind": "abandoned"})
        assert (response.status_code, response.json()["collected"]) == (201, False)
        await http.post(f"/v1/searches/{found['id']}/feedback", json={"rating": "up"})
        assert await told(parts) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "thumbs"},
        {"kind": "reformulated"},
        {"kind": "opened"},
        {"kind": "opened", "evidence_id": "c99"},
        {"kind": "opened", "evidence_id": "x" * 201},
        {"kind": "abandoned", "evidence_id": "c1"},
        {"kind": "abandoned", "note": "x"},
    ],
)
async def test_what_is_no_signal_is_refused(harbour: str, body: dict[str, Any]) -> None:
    async with serving(collect="all") as (http, parts):
        found = await search(http)
        assert (await http.post(f"/v1/searches/{found['id']}/signals", json=body)).status_code == 422
        assert await told(parts) == []


async def test_a_search_that_runs_takes_none(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, collect="all") as (http, _):
        started = (await http.post("/v1/search", json={"query": ASKED, "background": True})).json()
        await gate.came()
        refused = await http.post(f"/v1/searches/{started['id']}/signals", json={"kind": "abandoned"})
        assert (refused.status_code, code_of(refused)) == (409, "search_running")
        gate.opened.set()


async def test_a_search_has_room_for_so_many(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MAX_SIGNALS", 2)
    async with serving(collect="all") as (http, parts):
        place = f"/v1/searches/{(await search(http))['id']}/signals"
        statuses = [(await http.post(place, json={"kind": "abandoned"})).status_code for _ in range(3)]
        assert statuses == [201, 201, 429]
        assert len(await told(parts)) == 2


async def test_feedback_becomes_signals_without_its_comment(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        found = await search(http)
        first = found["results"][0]["id"]
        said = {"rating": -0.5, "evidence": {first: True}, "comment": "a heron", "answer": "Edda Brask"}
        await http.post(f"/v1/searches/{found['id']}/feedback", json=said)
        assert [(kind, value) for _, kind, value in await told(parts)] == [
            ("thumbs", -0.5),
            ("evidence", {first: True}),
            ("answer", "Edda Brask"),
        ]


async def test_the_same_session_asking_again_is_a_reformulation(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        first = await search(http, session="a")
        await search(http, AGAIN, session="b")
        await search(http, ASKED, session="a")  # the same words: a page that is loaded again
        await search(http, "Where did Corran have its yard?", session="a")
        assert await told(parts) == []
        second = await search(http, AGAIN, session="a")
        [(search_id, kind, value)] = await told(parts)
        assert (kind, value) == ("reformulated", second["id"])
        assert search_id != first["id"]  # the newest of those that it asks again


@pytest.mark.parametrize("given", [{}, {"collect": False, "session": "a"}])
async def test_nobody_in_particular_reformulates_nothing(harbour: str, given: dict[str, Any]) -> None:
    async with serving(collect="all") as (http, parts):
        await search(http, session=given.get("session")) if given else await search(http)
        await search(http, AGAIN, **given)
        assert await told(parts) == []


async def test_a_key_asks_again_and_reads_on(harbour_template: Path) -> None:
    settle(harbour_template, "acme/harbour")
    one, other = (bearer(make_key(tenant="acme")) for _ in range(2))
    async with keyed(collect="all", require_key=True) as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        first = await search(http, headers=one)
        result = first["results"][0]
        for headers in (other, one, one):
            read_it = await http.post("/v1/fetch", json={"document_id": result["document_id"]}, headers=headers)
            assert read_it.status_code == 200
        await http.post("/v1/fetch", json={"document_id": "nope.md"}, headers=one)
        await search(http, AGAIN, headers=other)
        assert await told(parts) == [(first["id"], "opened", result["id"])]
        second = await search(http, AGAIN, headers=one)
        assert (await told(parts))[1:] == [(first["id"], "reformulated", second["id"])]


async def test_the_key_of_the_settings_is_nobody_in_particular(harbour: str) -> None:
    headers = bearer("a key of the settings")
    async with keyed(collect="all", api_key="a key of the settings") as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        first = await search(http, headers=headers)
        await http.post("/v1/fetch", json={"document_id": first["results"][0]["document_id"]}, headers=headers)
        await search(http, AGAIN, headers=headers)
        assert await told(parts) == []


async def test_another_tenants_search_takes_no_signal(harbour_template: Path) -> None:
    for tenant in ("acme", "other"):
        settle(harbour_template, f"{tenant}/harbour")
    mine, theirs = (bearer(make_key(tenant=tenant)) for tenant in ("acme", "other"))
    writer = bearer(make_key(tenant="acme", scopes=[Scope.WRITE]))
    async with keyed(collect="all", require_key=True) as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        place = f"/v1/searches/{(await search(http, headers=mine))['id']}/signals"
        refused = await http.post(place, json={"kind": "abandoned"}, headers=theirs)
        assert (refused.status_code, code_of(refused)) == (404, "search_not_found")
        refused = await http.post(place, json={"kind": "abandoned"}, headers=writer)
        assert (refused.status_code, code_of(refused)) == (403, "missing_scope")
        assert await told(parts) == []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_recent_ends() -> None:
    clock = Clock()
    recent = Recent(clock=clock)
    recent.ended("s1", "", ASKED, session=None, key="k", documents={("c", "d"): "c1"})
    clock.now = WITHIN_S
    assert recent.reformulated(AGAIN, session=None, key="k") == "s1"
    clock.now = WITHIN_S + 1
    assert recent.reformulated(AGAIN, session=None, key="k") is None
    clock.now = OPENED_S + 1
    assert recent.opened(("c", "d"), key="k") is None
    recent.tidy()
    clock.now = 0.0
    assert recent.reformulated(AGAIN, session=None, key="k") is None


def test_the_newest_search_is_the_one_that_was_opened_and_once() -> None:
    recent = Recent()
    for name in ("s1", "s2"):
        recent.ended(name, "", ASKED, session="x", key="k", documents={("c", "d"): "c1"})
    assert recent.opened(("c", "d"), key="k") == ("s2", "c1")
    assert recent.opened(("c", "d"), key="k") is None
    recent.forget("s2")
    assert recent.opened(("c", "d"), key="k") == ("s1", "c1")


def test_so_much_is_held_and_no_more() -> None:
    recent = Recent()
    for number in range(KEPT + 1):
        recent.ended(f"s{number}", "", ASKED, session="x", key=None, documents={})
    for number in range(KEPT + 1):
        recent.forget(f"s{number}") if number else None
    assert recent.reformulated(AGAIN, session="x", key=None) is None
    for number in range(MAX_UNITS + 1):
        recent.ended(f"t{number}", "", ASKED, session=str(number), key=None, documents={})
    assert recent.reformulated(AGAIN, session="0", key=None) is None
    assert recent.reformulated(AGAIN, session="1", key=None) == "t1"
