"""`POST /v1/retrieve` and `POST /v1/fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from keyed_support import bearer, code_of, keyed, make_key, settle
from search_support import serving
from support import prepare

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path
from thresher.engine.tokenizers import default_counter


async def test_passages_are_those_of_a_minimal_search(harbour: str) -> None:
    async with serving(None) as (http, _):
        query = "who founded the Brask works"
        got = (await http.post("/v1/retrieve", json={"query": query, "max_results": 2})).json()
        searched = (await http.post("/v1/search", json={"query": query, "effort": "minimal", "max_results": 2})).json()
        assert (got["object"], got["mode"], got["collections"]) == ("retrieval", "hybrid", ["harbour"])
        assert got["results"] == searched["results"]
        assert got["results"][0]["document_id"] == "brask.md"


async def test_patterns_are_matched(harbour: str) -> None:
    async with serving(None) as (http, _):
        got = (await http.post("/v1/retrieve", json={"query": r"(?i)\bedda\s+BRASK\b", "mode": "grep"})).json()
        assert {item["document_id"] for item in got["results"]} == {"brask.md"}
        assert (await http.post("/v1/retrieve", json={"query": "nowhere at all", "mode": "grep"})).json()[
            "results"
        ] == []
        wrong = await http.post("/v1/retrieve", json={"query": "(", "mode": "grep"})
        assert (wrong.status_code, code_of(wrong), wrong.json()["error"]["param"]) == (422, "invalid_query", "query")


@pytest.mark.parametrize("mode", ["hybrid", "grep"])
async def test_filters_hold(harbour: str, mode: str) -> None:
    async with serving(None) as (http, _):
        body = {"query": "yard", "mode": mode, "filters": {"type": "eq", "key": "year", "value": 1958}}
        found = (await http.post("/v1/retrieve", json=body)).json()["results"]
        assert found
        assert {item["metadata"]["year"] for item in found} == {1958}
        wrong = await http.post("/v1/retrieve", json={**body, "filters": {"type": "near"}})
        assert (wrong.status_code, code_of(wrong)) == (422, "invalid_filter")


async def test_near_duplicates_are_left_out_where_that_is_asked_for(harbour: str) -> None:
    async with serving(None) as (http, _):
        embedder = load_embedder("wordllama")
        text = "The works at Holm made marine engines for ferries of the northern line until the war came to the coast."
        with Collection.create(collection_path("twins"), embedder, name="twins") as collection:
            for name in ("one.md", "two.md"):
                document = Document(name, name, name, text, {}, name)
                collection.upsert([prepare(document, embedder=embedder)], source_id=name)
        body: dict[str, Any] = {"query": "marine engines", "collections": ["twins"]}
        assert len((await http.post("/v1/retrieve", json=body)).json()["results"]) == 2
        [only] = (await http.post("/v1/retrieve", json={**body, "near_duplicates": True})).json()["results"]
        assert len(only["duplicates"]) == 1
        assert len((await http.post("/v1/retrieve", json={**body, "near_duplicates": False})).json()["results"]) == 2
        several = {**body, "collections": ["twins", "harbour"]}
        found = (await http.post("/v1/retrieve", json=several)).json()["results"]
        assert {item["collection"] for item in found} == {"twins", "harbour"}
        assert [item["id"] for item in found] == [f"c{n}" for n in range(1, len(found) + 1)]


async def test_a_reranker_that_is_not_there_cannot_be_asked(harbour: str) -> None:
    async with serving(None) as (http, _):
        refused = await http.post("/v1/retrieve", json={"query": "yard", "rerank": True})
        assert (refused.status_code, code_of(refused), refused.json()["error"]["param"]) == (
            422,
            "unsupported",
            "rerank",
        )
        assert (await http.post("/v1/retrieve", json={"query": "yard", "rerank": False})).status_code == 200


BAD: list[tuple[str, dict[str, Any], int, str | None]] = [
    ("retrieve", {}, 422, "query"),
    ("retrieve", {"query": ""}, 422, "query"),
    ("retrieve", {"query": " \n"}, 422, "query"),
    ("retrieve", {"query": "x", "max_results": 0}, 422, "max_results"),
    ("retrieve", {"query": "x", "mode": "dense"}, 422, "mode"),
    ("retrieve", {"query": "x", "collections": []}, 422, "collections"),
    ("retrieve", {"query": "x", "collections": ["other/harbour"]}, 422, "collections"),
    ("retrieve", {"query": "x", "collections": ["nowhere"]}, 404, "collections"),
    ("retrieve", {"query": "x", "path": "/etc"}, 422, "path"),
    ("fetch", {}, 422, "document_id"),
    ("fetch", {"document_id": "nothing.md"}, 404, None),
    ("fetch", {"document_id": "brask.md", "collection": "nowhere"}, 404, "collections"),
    ("fetch", {"document_id": "brask.md", "start": -1}, 422, "start"),
    ("fetch", {"document_id": "brask.md", "start": 10_000}, 422, "start"),
    ("fetch", {"document_id": "brask.md", "max_tokens": 0}, 422, "max_tokens"),
]


async def test_bad_requests_name_the_field(harbour: str) -> None:
    async with serving(None) as (http, _):
        for path, body, status, param in BAD:
            response = await http.post(f"/v1/{path}", json=body)
            assert response.status_code == status, (path, body, response.text)
            assert response.json()["error"]["param"] == param


async def test_a_document_is_read_whole(harbour: str) -> None:
    async with serving(None) as (http, _):
        got = (await http.post("/v1/fetch", json={"document_id": "brask.md"})).json()
        text = "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask."
        assert (got["object"], got["collection"], got["text"]) == ("document", "harbour", text)
        assert (got["start"], got["end"], got["length"], got["next_start"]) == (0, len(text), len(text), None)
        assert (got["title"], got["url"], got["metadata"]) == ("Brask", "file:///brask.md", {"year": 1958})
        for chunk in got["chunks"]:
            assert 0 <= chunk["start"] < chunk["end"] <= len(text)


async def test_a_long_document_is_read_a_stretch_at_a_time(harbour: str) -> None:
    """The stretches are whole words, no longer than asked for, and together the text itself."""
    async with serving(None) as (http, _):
        embedder = load_embedder("wordllama")
        text = (
            "".join(f"Entry {n}: the ferry Alma, Überfahrt 東京 №{n}.\n\n" for n in range(300))
            + "x" * 5_000
            + " end 🛥️🛥️"
        )
        with Collection.create(collection_path("log"), embedder, name="log") as collection:
            document = Document("log.md", "file:///log.md", "Log", text, {}, "log.md")
            collection.upsert([prepare(document, embedder=embedder)], source_id="log.md")
        parts: list[dict[str, Any]] = []
        start: int | None = 0
        while start is not None:
            body = {"collection": "log", "document_id": "log.md", "start": start, "max_tokens": 700}
            parts.append((await http.post("/v1/fetch", json=body)).json())
            assert parts[-1]["start"] == start
            start = parts[-1]["next_start"]
        assert "".join(part["text"] for part in parts) == text
        count = default_counter().count_once
        for part in parts:
            assert count(part["text"]) == part["tokens"] <= 700
            assert text[part["start"] : part["end"]] == part["text"]
            assert all(chunk["end"] > part["start"] and chunk["start"] < part["end"] for chunk in part["chunks"])
        assert min(part["tokens"] for part in parts[:-1]) > 350
        assert parts[0]["text"].endswith((" ", "\n"))


async def test_a_stretch_of_one_token_is_never_empty(harbour: str) -> None:
    async with serving(None) as (http, _):
        start: int | None = 0
        text = ""
        while start is not None and len(text) < 40:
            got = (
                await http.post("/v1/fetch", json={"document_id": "brask.md", "start": start, "max_tokens": 1})
            ).json()
            assert got["text"]
            text, start = text + got["text"], got["next_start"]
        assert "The Brask works made marine engines.\n\nThe founder".startswith(text[:40])


async def test_pages_of_paged_documents_are_told(pdf_collection: str) -> None:
    async with serving(None, collection=pdf_collection) as (http, _):
        found = (await http.post("/v1/retrieve", json={"query": "findings of the inquiry"})).json()["results"]
    assert {item["page"] for item in found if item["document_id"] != "note.txt"} <= {1, 2, 3, 4}


async def test_a_tenant_looks_into_its_own_collections(harbour_template: Path) -> None:
    settle(harbour_template, "alpha/harbour")
    mine, theirs = (bearer(make_key(name=tenant, tenant=tenant)) for tenant in ("alpha", "beta"))
    async with keyed() as http:
        for path, body in (("retrieve", {"query": "yard"}), ("fetch", {"document_id": "brask.md"})):
            assert (await http.post(f"/v1/{path}", json=body, headers=mine)).status_code == 200
            refused = await http.post(f"/v1/{path}", json=body, headers=theirs)
            assert (refused.status_code, code_of(refused)) == (404, "collection_not_found")
            assert "alpha" not in refused.text
