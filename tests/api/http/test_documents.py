"""Documents over HTTP: put, listed, read, removed; by ids of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_support import asking, error_of, uploaded

from thresher.api.operations.base import Reporter
from thresher.api.operations.local import LocalTarget
from thresher.api.operations.table import operation

JSON = {"Content-Type": "application/json"}
DOCUMENTS = "/v1/collections/harbour/documents"
ODD = [
    "a/b/c.md",
    "/abs",
    "a//b/",
    "Zoë Ünï 漢字 🚢.pdf",
    "q?x=1&y#z",
    "100%",
    "%2F",
    "...",
    "a b",
    "back\\slash",
    "𐍈" * 200,
]


def at(document_id: str) -> str:
    return f"{DOCUMENTS}/{quote(document_id, safe='')}"


async def test_documents_are_put_found_replaced_and_removed(harbour: str) -> None:
    async with asking() as http:
        put = {"text": "The tug Selkie towed the Alma to Holm in 1932.", "title": "Tug", "metadata": {"year": 1932}}
        made = await http.put(at("tug.md"), json=put)
        assert made.status_code == 201, made.text
        assert made.json() == {
            "object": "document",
            "id": "tug.md",
            "title": "Tug",
            "url": "urn:thresher:tug.md",
            "metadata": {"year": 1932},
            "source_id": "api",
            "chunks": 1,
            "text": None,
            "passages": None,
        }
        again = await http.put(at("tug.md"), json=put)
        assert (again.status_code, again.json()) == (200, made.json())
        found = await search(http, "tug Selkie")
        assert found[0]["document_id"] == "tug.md"
        changed = await http.put(at("tug.md"), json={"text": "The tug Merrow.", "url": "https://example.org/tug"})
        assert (changed.status_code, changed.json()["url"]) == (200, "https://example.org/tug")
        read = (await http.get(at("tug.md"), params={"include": ["text", "passages"]})).json()
        assert read["text"] == "The tug Merrow."
        [passage] = read["passages"]
        assert read["text"][passage["start"] : passage["end"]] == passage["text"]
        assert "Selkie" not in str(await search(http, "tug Selkie"))
        gone = await http.delete(at("tug.md"))
        assert gone.json() == {"object": "document", "id": "tug.md", "deleted": True}
        error_of(await http.get(at("tug.md")), 404, "document_not_found")
        error_of(await http.delete(at("tug.md")), 404, "document_not_found")
        assert "tug.md" not in {item["document_id"] for item in await search(http, "tug Merrow")}


async def search(http: httpx.AsyncClient, query: str) -> list[dict[str, Any]]:
    response = await http.post("/v1/search", json={"query": query, "effort": "minimal"})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


async def test_many_are_put_at_once_and_each_has_its_verdict(harbour: str) -> None:
    documents = [
        {"id": "one", "text": "First text."},
        {"id": "empty", "text": " \u200b "},
        {"id": "", "text": "No id."},
        {"id": "brask.md", "text": "Not mine to replace."},
        {"id": "deep", "text": "Metadata that is no value.", "metadata": {"a": {"b": 1}}},
        {"id": "script", "text": "A link.", "url": " java\tscript:alert(1)"},
        {"id": "two", "text": "Second text.", "metadata": {"ok": True, "n": 1.5, "s": "x"}},
    ]
    async with asking() as http:
        answer = await http.put(DOCUMENTS, json={"documents": documents})
        assert answer.status_code == 207
        report = answer.json()
        assert [(item["id"], item["status"]) for item in report["results"]] == [
            ("one", "written"),
            ("empty", "refused"),
            ("", "refused"),
            ("brask.md", "written"),
            ("deep", "refused"),
            ("script", "refused"),
            ("two", "written"),
        ]
        assert all(item["reason"] for item in report["results"] if item["status"] == "refused")
        assert (report["written"], report["refused"], report["embedded"]) == (3, 4, 3)
        again = await http.put(DOCUMENTS, json={"documents": [documents[0], documents[6]]})
        assert (again.status_code, again.json()["unchanged"], again.json()["embedded"]) == (200, 2, 0)
        twice = [{"id": "x", "text": "The earlier."}, {"id": "x", "text": "The later."}]
        await http.put(DOCUMENTS, json={"documents": twice})
        assert (await http.get(at("x"), params={"include": "text"})).json()["text"] == "The later."


async def test_what_a_file_has_is_not_replaced(tmp_path: Path, thresher_home: Path) -> None:
    (tmp_path / "log.md").write_text("From the file.")
    ingest = operation("ingest")
    request = ingest.request(origins=[str(tmp_path / "log.md")], default_embedder="wordllama")
    ingest.run(LocalTarget("harbour"), request, Reporter())
    async with asking() as http:
        await uploaded(http, "harbour", ("sent.md", "From the upload."))
        for name in ("log.md", "sent.md"):
            message = error_of(await http.put(at(name), json={"text": "From the request."}), 409, "id_taken")
            assert name in message
            assert str(tmp_path) not in message
            assert "From the" in (await http.get(at(name), params={"include": "text"})).json()["text"]


async def test_documents_are_listed_by_id(harbour: str) -> None:
    async with asking() as http:
        names = [f"n{number:03}" for number in range(45)]
        await http.put(DOCUMENTS, json={"documents": [{"id": name, "text": f"Text of {name}."} for name in names]})
        seen, after = [], None
        while True:
            params = {"limit": 20, "source_id": "api", **({"after": after} if after else {})}
            page = (await http.get(DOCUMENTS, params=params)).json()
            seen += [document["id"] for document in page["data"]]
            after = page["next"]
            assert page["has_more"] is (after is not None)
            if after is None:
                break
            # Whoever reads pages is not disturbed by what comes and goes meanwhile.
            await http.delete(at(after))
            await http.put(at(f"{after}+"), json={"text": "In between."})
        assert [name for name in seen if "+" not in name] == names
        mixed = (await http.get(DOCUMENTS, params={"limit": 100})).json()["data"]
        ids = [document["id"] for document in mixed]
        assert ids == sorted(ids)
        assert {"brask.md", "corran.md", "ferry.md"} < set(ids)
        assert (await http.get(DOCUMENTS, params={"source_id": "nobody"})).json()["data"] == []
        for params in ({"limit": 0}, {"limit": 101}, {"limit": "x"}):
            error_of(await http.get(DOCUMENTS, params=params), 422, "invalid_field")


async def test_ids_may_be_anything(harbour: str) -> None:
    async with asking() as http:
        for document_id in ODD:
            made = await http.put(at(document_id), json={"text": f"A document called {document_id}."})
            assert (made.status_code, made.json()["id"]) == (201, document_id), made.text
        for document_id in ODD:
            read = (await http.get(at(document_id), params={"include": "text"})).json()
            assert (read["id"], read["text"]) == (document_id, f"A document called {document_id}.")
        listed = (await http.get(DOCUMENTS, params={"source_id": "api", "limit": 100})).json()["data"]
        assert {document["id"] for document in listed} == set(ODD)
        for document_id in ODD:
            assert (await http.delete(at(document_id))).status_code == 200
        assert (await http.get(DOCUMENTS, params={"source_id": "api"})).json()["data"] == []
        error_of(await http.put(at("x" * 1_001), json={"text": "Too long."}), 422, "invalid_field")


async def test_what_makes_no_document_is_refused(harbour: str) -> None:
    bodies: list[tuple[Any, str]] = [
        ({}, "invalid_field"),
        ({"text": 7}, "invalid_field"),
        ({"text": "x", "uri": "file:///etc/passwd"}, "unknown_field"),
        ({"text": "  "}, "invalid_field"),
        ({"text": "x", "metadata": {"a": [1]}}, "invalid_field"),
        ({"text": "x", "url": "JAVASCRIPT:alert(1)"}, "invalid_field"),
        ({"text": "x", "title": "t" * 2_001}, "invalid_field"),
    ]
    async with asking() as http:
        for body, code in bodies:
            error_of(await http.put(at("new"), json=body), 422, code)
        for raw in (
            b'{"text": "\\ud800"}',
            b'{"text": "x", "title": "\\ud800"}',
            b'{"text": "x", "metadata": {"a": "\\ud800"}}',
            b'{"text": "x", "metadata": {"\\ud800": 1}}',
            b'{"text": "x", "metadata": {"a": NaN}}',
        ):
            error_of(await http.put(at("new"), content=raw, headers=JSON), 422, "invalid_field")
        named = b'{"documents": [{"id": "\\ud800", "text": "x"}]}'
        error_of(await http.put(DOCUMENTS, content=named, headers=JSON), 422, "invalid_field")
        error_of(await http.get(at("new")), 404, "document_not_found")


async def test_requests_have_a_size(harbour: str) -> None:
    async with asking(max_body_bytes=20_000) as http:
        error_of(await http.put(at("big"), json={"text": "x" * 20_000}), 413, "body_too_large")
        many = {"documents": [{"id": str(number), "text": "x"} for number in range(1_001)]}
        answer = await http.put(DOCUMENTS, json=many)
        assert answer.status_code in (413, 422)
    async with asking() as http:
        error_of(await http.put(DOCUMENTS, json=many), 422, "invalid_field")
        error_of(await http.put(DOCUMENTS, json={"documents": []}), 422, "invalid_field")
        error_of(await http.put("/v1/collections/no/documents", json=many), 422, "invalid_field")
        error_of(await http.get("/v1/collections/no/documents"), 404, "collection_not_found")
        error_of(await http.put("/v1/collections/no/documents/x", json={"text": "x"}), 404, "collection_not_found")


async def test_any_id_and_text_come_back_as_they_went_in(harbour: str) -> None:
    visible = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60)

    async with asking() as http:

        async def put(document_id: str, text: str) -> None:
            answer = await http.put(DOCUMENTS, json={"documents": [{"id": document_id, "text": text}]})
            assert answer.status_code in (200, 207), answer.text
            [result] = answer.json()["results"]
            if result["status"] == "refused" or result["id"] in (".", ".."):  # a client resolves these in a path
                return
            answer = await http.get(at(result["id"]), params={"include": "text"})
            assert answer.status_code == 200, (document_id, answer.text)
            read = answer.json()
            assert (read["id"], read["text"]) == (document_id.replace("\0", "\ufffd"), text.replace("\0", "\ufffd"))

        examples: list[tuple[str, str]] = []

        @settings(max_examples=25, database=None)
        @given(visible, visible)
        def collect(document_id: str, text: str) -> None:
            examples.append((document_id, text))

        collect()
        for example in examples:
            await put(*example)
