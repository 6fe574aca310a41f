"""`POST /v1/searches/{id}/feedback`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from keyed_support import code_of
from search_support import QUESTION, Gate, serving

from thresher.api.http.parts import Parts
from thresher.api.service.searching.feedback import MAX_KEPT


async def searched(http: httpx.AsyncClient) -> dict[str, Any]:
    body: dict[str, Any] = (await http.post("/v1/search", json={"query": QUESTION})).json()
    return body


def kept(parts: Parts) -> list[dict[str, Any]]:
    with parts.database.read() as connection:
        return [dict(row) for row in connection.execute("SELECT * FROM feedback ORDER BY created")]


async def test_feedback_is_kept_beside_its_search(harbour: str) -> None:
    async with serving() as (http, parts):
        search = await searched(http)
        said = {
            "rating": -0.5,
            "evidence": {search["results"][0]["id"]: True},
            "comment": "It took long.",
            "answer": "Edda Brask",
        }
        place = f"/v1/searches/{search['id']}/feedback"
        response = await http.post(place, json=said)
        assert response.status_code == 201
        receipt = response.json()
        assert set(receipt) == {"object", "id", "search_id", "created_at"}
        assert (receipt["object"], receipt["search_id"]) == ("feedback", search["id"])
        [row] = kept(parts)
        assert (row["id"], row["search_id"], row["tenant"], row["key_id"]) == (receipt["id"], search["id"], "", "local")
        assert (row["rating"], row["comment"], row["answer"]) == (-0.5, "It took long.", "Edda Brask")
        assert json.loads(row["evidence"]) == said["evidence"]


@pytest.mark.parametrize(("rating", "expected"), [("up", 1.0), ("down", -1.0), (1, 1.0), (-1, -1.0), (0, 0.0)])
async def test_ratings(harbour: str, rating: Any, expected: float) -> None:
    async with serving() as (http, parts):
        search = await searched(http)
        assert (await http.post(f"/v1/searches/{search['id']}/feedback", json={"rating": rating})).status_code == 201
        assert [row["rating"] for row in kept(parts)] == [expected]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rating": 2},
        {"rating": "good"},
        {"rating": True},
        {"rating": 1, "evidence": {"c99": True}},
        {"rating": 1, "evidence": {"c1": "very"}},
        {"rating": 1, "evidence": {f"c{n}": True for n in range(201)}},
        {"rating": 1, "comment": "x" * 10_001},
        {"rating": 1, "search": "x"},
    ],
)
async def test_what_is_no_feedback_is_refused(harbour: str, body: dict[str, Any]) -> None:
    async with serving() as (http, parts):
        search = await searched(http)
        response = await http.post(f"/v1/searches/{search['id']}/feedback", json=body)
        assert response.status_code == 422, response.text
        assert kept(parts) == []


async def test_a_search_has_room_for_so_much(harbour: str) -> None:
    async with serving() as (http, parts):
        search = await searched(http)
        place = f"/v1/searches/{search['id']}/feedback"
        for _ in range(MAX_KEPT):
            assert (await http.post(place, json={"rating": "up"})).status_code == 201
        refused = await http.post(place, json={"rating": "up"})
        assert (refused.status_code, code_of(refused)) == (429, "too_much_feedback")
        assert len(kept(parts)) == MAX_KEPT


async def test_a_search_that_runs_takes_none(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        started = (await http.post("/v1/search", json={"query": QUESTION, "background": True})).json()
        await gate.came()
        refused = await http.post(f"/v1/searches/{started['id']}/feedback", json={"rating": "up"})
        assert (refused.status_code, code_of(refused)) == (409, "search_running")
        gate.opened.set()
