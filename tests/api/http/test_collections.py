"""Collections over HTTP: listed, made, looked at, removed whole or not at all."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from face_support import thresher
from jobs_support import asking, error_of, running, talking

from thresher.api.config import Settings
from thresher.api.service.content.collections import known_embedders, shown_embedder
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.lifecycle import removal
from thresher.corpus.paths import collection_path, list_collections


async def test_a_collection_is_made_listed_and_looked_at(harbour: str) -> None:
    async with asking() as http:
        made = await http.post("/v1/collections", json={"name": "letters", "chunker": "structure-1:100"})
        assert made.status_code == 201, made.text
        assert made.headers["location"] == "/v1/collections/letters"
        seen = (await http.get("/v1/collections/letters")).json()
        assert seen == made.json()
        assert (seen["object"], seen["name"], seen["documents"], seen["chunks"]) == ("collection", "letters", 0, 0)
        assert (seen["embedder"], seen["dimension"], seen["chunker"]) == ("wordllama", 256, "structure-1:100")
        assert seen["index"] == {"ready": True, "dense": "exact", "pending": 0, "faults": []}
        assert seen["bytes"] > 0
        assert seen["created_at"] > 1_700_000_000
        listed = (await http.get("/v1/collections")).json()
        assert [item["name"] for item in listed["data"]] == ["harbour", "letters"]
        closed, opened = listed["data"]
        assert (closed["documents"], closed["chunks"], closed["index"]["dense"]) == (3, 6, None)
        assert opened["index"]["dense"] == "exact"
        first = (await http.get("/v1/collections", params={"limit": 1})).json()
        rest = (await http.get("/v1/collections", params={"limit": 1, "after": first["next"]})).json()
        assert [first["data"][0]["name"], rest["data"][0]["name"]] == ["harbour", "letters"]
        assert (first["has_more"], rest["has_more"], rest["next"]) == (True, False, None)


async def test_listing_opens_nothing(harbour: str) -> None:
    async with running() as app, talking(app) as http:
        assert (await http.get("/v1/collections")).json()["data"][0]["documents"] == 3
        assert app.state.registry.opened() == {}
    with Collection.open(collection_path("harbour")):
        async with asking() as http:
            assert (await http.get("/v1/collections")).json()["data"][0]["chunks"] == 6


async def test_one_that_cannot_be_seen_does_not_hide_the_others(harbour: str, thresher_home: Path) -> None:
    broken = collection_path("broken")
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    async with asking() as http:
        data = (await http.get("/v1/collections")).json()["data"]
    assert [item["name"] for item in data] == ["broken", "harbour"]
    assert data[0]["problem"]
    assert str(thresher_home) not in data[0]["problem"]
    assert (data[0]["documents"], data[1]["documents"]) == (None, 3)


async def test_what_cannot_be_made_is_refused(harbour: str) -> None:
    bodies: list[tuple[Any, int, str]] = [
        ({"name": "harbour"}, 409, "collection_exists"),
        ({"name": "Harbour"}, 422, "invalid_field"),
        ({"name": "../x"}, 422, "invalid_field"),
        ({"name": "other/x"}, 422, "invalid_field"),
        ({"name": ""}, 422, "invalid_field"),
        ({}, 422, "invalid_field"),
        ({"name": "x", "path": "/etc"}, 422, "unknown_field"),
        ({"name": "x", "embedder": "st:/etc/passwd"}, 422, "unknown_embedder"),
        ({"name": "x", "embedder": "openai:m@http://10.0.0.1/v1"}, 422, "unknown_embedder"),
        ({"name": "x", "chunker": "structure-1:3"}, 422, "unknown_chunker"),
        ({"name": "x", "chunker": "structure-1:99999999"}, 422, "unknown_chunker"),
    ]
    async with asking() as http:
        for body, status, code in bodies:
            error_of(await http.post("/v1/collections", json=body), status, code)
    assert list_collections() == ["harbour"]


async def test_making_one_twice_with_a_key_makes_it_once(thresher_home: Path) -> None:
    async with asking() as http:
        key = {"Idempotency-Key": "k1"}
        answers = await asyncio.gather(
            *[http.post("/v1/collections", json={"name": "a"}, headers=key) for _ in range(3)]
        )
        assert [answer.status_code for answer in answers] == [201] * 3
        assert len({answer.text for answer in answers}) == 1
        other = await http.post("/v1/collections", json={"name": "b"}, headers=key)
        error_of(other, 422, "idempotency_mismatch")
        race = await asyncio.gather(*[http.post("/v1/collections", json={"name": "c"}) for _ in range(3)])
        assert sorted(answer.status_code for answer in race) == [201, 409, 409]


async def test_the_settings_name_an_embedder_that_clients_may_ask_for(thresher_home: Path) -> None:
    assert shown_embedder("openai:small@http://user:pass@inside:1/v1") == "openai:small"
    assert shown_embedder("st:/srv/models/mine") == "st:mine"
    assert shown_embedder("st:org/model") == "st:org/model"
    spec = "openai:small@http://127.0.0.1:9/v1"
    assert known_embedders(Settings(embedder=spec))["openai:small"] == spec
    async with asking(embedder=spec) as http:
        refused = await http.post("/v1/collections", json={"name": "x", "embedder": "openai:large"})
        message = error_of(refused, 422, "unknown_embedder")
        assert "127.0.0.1" not in message


async def test_a_collection_is_removed_whole(harbour: str) -> None:
    folder = collection_path("harbour").parent
    async with asking() as http:
        assert (await http.get("/v1/collections/harbour")).status_code == 200
        error_of(await http.delete("/v1/collections/harbour"), 422, "invalid_field")
        error_of(await http.delete("/v1/collections/harbour", params={"confirm": "harbor"}), 422, "invalid_field")
        error_of(await http.delete("/v1/collections/x", params={"confirm": "x"}), 404, "collection_not_found")
        gone = await http.delete("/v1/collections/harbour", params={"confirm": "harbour"})
        assert gone.json() == {"object": "collection", "name": "harbour", "deleted": True}
        error_of(await http.get("/v1/collections/harbour"), 404, "collection_not_found")
        error_of(
            await http.post("/v1/search", json={"query": "Brask", "collections": ["harbour"]}),
            404,
            "collection_not_found",
        )
        assert os.listdir(folder) == []
        assert (await http.post("/v1/collections", json={"name": "harbour"})).json()["documents"] == 0


async def test_one_in_use_is_not_removed(harbour: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as app, talking(app) as http:
        with app.state.registry.task("harbour", "ingest"):
            confirm = {"confirm": "harbour"}
            error_of(await http.delete("/v1/collections/harbour", params=confirm), 409, "collection_busy")
            job = (await http.post("/v1/collections/harbour/rebuild")).json()
            message = error_of(await http.delete("/v1/collections/harbour", params=confirm), 409, "collection_busy")
            assert "1 jobs" in message
            await http.post(f"/v1/jobs/{job['id']}/cancel")
        with Collection.open(collection_path("harbour")):
            error_of(await http.delete("/v1/collections/harbour", params=confirm), 409, "collection_locked")
        assert "is already open" in caplog.text  # what the client is not told
        assert "Traceback" not in caplog.text
        assert (await http.get("/v1/collections/harbour")).json()["chunks"] == 6


async def test_a_removal_that_is_cut_off_leaves_it_or_nothing(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = collection_path("harbour")
    delete = {"url": "/v1/collections/harbour", "params": {"confirm": "harbour"}}

    def unreachable(*_: object) -> None:
        raise IndexUnreachable("the server that has its vectors does not answer")

    async with asking() as http:
        with monkeypatch.context() as patch:
            patch.setattr(removal, "forget_before_removal", unreachable)
            error_of(await http.delete(**delete), 503, "index_unreachable")
        assert (await http.get("/v1/collections/harbour")).json()["chunks"] == 6
        with monkeypatch.context() as patch:  # dies before any file is gone
            patch.setattr(removal.shutil, "rmtree", lambda *_, **__: None)
            assert (await http.delete(**delete)).status_code == 200
        assert list_collections() == []
        [left] = path.parent.iterdir()
        assert (left / "corpus.db").exists()
    async with asking() as http:
        assert list(path.parent.iterdir()) == []


async def test_a_server_of_some_collections_makes_and_lists_no_others(harbour: str) -> None:
    Collection.create(collection_path("other"), load_embedder("wordllama")).close()
    async with asking(only=("harbour",)) as http:
        assert [item["name"] for item in (await http.get("/v1/collections")).json()["data"]] == ["harbour"]
        error_of(await http.get("/v1/collections/other"), 404, "collection_not_found")
        error_of(await http.post("/v1/collections", json={"name": "new"}), 404, "collection_not_found")
        error_of(await http.delete("/v1/collections/other?confirm=other"), 404, "collection_not_found")


async def test_commands_beside_the_server_see_what_it_made(harbour: str) -> None:
    async with running() as app, talking(app) as http:
        app.state.control.open()
        await http.post("/v1/collections", json={"name": "letters"})
        body = {"documents": [{"id": "a/b", "text": "Letters about the lighthouse at Ness Point."}]}
        assert (await http.put("/v1/collections/letters/documents", json=body)).status_code == 200
        listed = await asyncio.to_thread(thresher, "ls", "-c", "letters", "--json")
        assert [document["id"] for document in json.loads(listed.stdout)["documents"]] == ["a/b"]
        found = await asyncio.to_thread(
            thresher, "search", "-c", "letters", "--effort", "minimal", "--json", "lighthouse at Ness Point"
        )
        assert [result["document_id"] for result in json.loads(found.stdout)["results"]] == ["a/b"]
