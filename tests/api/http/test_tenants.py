from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import Outcome
from keyed_support import PUBLIC, SEARCH, bearer, code_of, keyed, make_key, settle
from route_walk import Operation, Things, operations
from support import prepare

from thresher.api.http.access import OPEN_PATHS
from thresher.api.http.app import ROUTERS
from thresher.api.service.principal import Scope
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path

ABSENT = Things(
    collection="nothing",
    document="fairy.md",
    search="search_0123456789abcdef",
    job="job_0123456789abcdef",
)
_REQUEST_ID = re.compile(r'"request_id": ?"[^"]*"')
_HIDDEN = {"/openapi.json", "/mcp"}
"""Routes that are not in the document and want a key all the same."""


def tiny(name: str, text: str) -> str:
    """A collection of one document, `note.md`, under that qualified name."""
    embedder = load_embedder("wordllama")
    with Collection.create(collection_path(name), embedder, name=name.rpartition("/")[2]) as collection:
        document = Document("note.md", "file:///note.md", "Note", text, {}, "note.md")
        collection.upsert([prepare(document, embedder=embedder)], source_id="note.md")
    return name


@dataclass(frozen=True)
class World:
    """A server, what the tenant north has on it, and a key of each tenant that may do everything."""

    http: httpx.AsyncClient
    north: str
    south: str
    owned: Things
    operations: tuple[Operation, ...]

    async def ask(self, operation: Operation, things: Things, headers: Mapping[str, str]) -> httpx.Response:
        return await self.http.send(operation.request(self.http, things, headers))


@asynccontextmanager
async def world(harbour_template: Path) -> AsyncIterator[World]:
    settle(harbour_template, "north/harbour")
    tiny("south/quay", "A wall where ships tie up.")
    north, south = (make_key(tenant=tenant, scopes=[Scope.ADMIN]) for tenant in ("north", "south"))
    async with keyed(PUBLIC, host="0.0.0.0", save_traces=True) as http:
        document = (await http.get("/openapi.json", headers=bearer(north))).json()
        search = await http.post("/v1/search", json={"query": "Edda Brask"}, headers=bearer(north))
        assert search.status_code == 200, search.text
        job = ABSENT.job
        if any(path.endswith("/verify") for path in document["paths"]):
            response = await http.post("/v1/collections/harbour/verify", headers=bearer(north))
            assert response.status_code == 202, response.text
            job = response.json()["id"]
            # Its events end with it.
            assert (await http.get(f"/v1/jobs/{job}/events", headers=bearer(north))).status_code == 200
        owned = Things(collection="harbour", document="ferry.md", search=search.json()["id"], job=job)
        yield World(http, north, south, owned, tuple(operations(document)))


def comparable(response: httpx.Response, things: Things) -> tuple[int, dict[str, str], str]:
    """What a client can tell of an answer, without the id of its request and those of what it asked for."""
    text = _REQUEST_ID.sub("", things.hidden_in(response.text))
    headers = {name: things.hidden_in(value) for name, value in response.headers.items()}
    for name in ("x-request-id", "content-length"):  # which the ids and their lengths are in
        headers.pop(name, None)
    return response.status_code, headers, text


def is_not_found(response: httpx.Response, operation: Operation) -> bool:
    """Whether an answer says that there is no such thing; the client of one door knows no other status than 400."""
    status = 400 if operation.path in ("/search", "/extract") or operation.path.startswith("/tavily/") else 404
    return response.status_code == status and code_of(response).endswith("_not_found")


async def test_another_tenants_objects_cannot_be_told_from_none(harbour_template: Path) -> None:
    async with world(harbour_template) as it:
        owner, foreign = bearer(it.north), bearer(it.south)
        before = {path: path.read_bytes() for path in collection_path("north/harbour").glob("manifest*")}
        assert before
        for operation in it.operations:
            named = await it.ask(operation, it.owned, foreign)
            if operation.names_something(it.http, it.owned, ABSENT):
                absent = await it.ask(operation, ABSENT, foreign)
                if operation.path == "/v1/collections":  # makes one of the tenant's own, whatever others have
                    assert (named.status_code, absent.status_code) == (201, 201), named.text
                    for name in (it.owned.collection, ABSENT.collection):
                        gone = await it.http.delete(
                            f"/v1/collections/{name}", params={"confirm": name}, headers=foreign
                        )
                        assert gone.status_code == 200, gone.text
                else:
                    assert comparable(named, it.owned) == comparable(absent, ABSENT), str(operation)
                    assert is_not_found(named, operation), f"{operation}: {named.status_code} {named.text}"
            for leak in (it.owned.search, it.owned.job, "Alma", "Brask", "harbour"):
                asked = leak in operation.request(it.http, it.owned, {}).read().decode(errors="replace")
                asked = asked or leak in str(operation.request(it.http, it.owned, {}).url)
                assert asked or leak not in named.text, f"{operation} tells of {leak}"
        # All of it is still there, and each of the requests was one that its owner may make.
        assert before == {path: path.read_bytes() for path in before}
        found = await it.http.post("/v1/search", json={**SEARCH, "query": "Alma"}, headers=owner)
        assert {"ferry.md"} <= {result["document_id"] for result in found.json()["results"]}
        for operation in it.operations:
            if operation.names_something(it.http, it.owned, ABSENT):
                mine = await it.ask(operation, it.owned, owner)
                assert mine.is_success or mine.status_code == 409, f"{operation}: {mine.status_code} {mine.text}"


async def test_lists_cannot_be_narrowed_down_by_what_others_have(harbour_template: Path) -> None:
    async with world(harbour_template) as it:
        narrowed = set()
        for operation in it.operations:
            for parameter, kind in (("collection", "collection"), ("after", "search"), ("after", "job")):
                answers = []
                for things in (it.owned, ABSENT):
                    asked = operation.lists(it.http, bearer(it.south), **{parameter: getattr(things, kind)})
                    if asked is not None:
                        narrowed.add((operation.path, parameter))
                        answers.append(comparable(await it.http.send(asked), things))
                assert not answers or answers[0] == answers[1], str(operation)
        assert {("/v1/jobs", "collection"), ("/v1/searches", "after")} <= narrowed


async def test_an_idempotency_key_is_its_tenants_own(harbour_template: Path) -> None:
    for tenant in ("north", "south"):
        settle(harbour_template, f"{tenant}/harbour")
    ids = []
    async with keyed(PUBLIC, host="0.0.0.0", api_key="k") as http:
        for tenant in ("north", "north", "south"):
            headers = {**bearer(make_key(tenant=tenant)), "Idempotency-Key": "one"}
            ids.append((await http.post("/v1/search", json=SEARCH, headers=headers)).json()["id"])
    assert ids[0] == ids[1]
    assert ids[1] != ids[2]


async def test_every_route_wants_a_key(harbour_template: Path) -> None:
    async with world(harbour_template) as it:
        for operation in it.operations:
            response = await it.ask(operation, it.owned, {})
            if operation.path in OPEN_PATHS:
                assert response.status_code in (200, 503), operation
                assert not [told for told in ("harbour", "north", "quay", it.owned.search) if told in response.text]
                continue
            assert (response.status_code, code_of(response)) == (401, "unauthorized"), operation
            assert comparable(response, it.owned) == comparable(await it.ask(operation, ABSENT, {}), ABSENT)
        documented = {operation.path for operation in it.operations}
        found = {re.sub(r":\w+}", "}", path) for path in all_paths(it.http)}
        assert documented <= found
        open_to_all = {path for path in found if path in OPEN_PATHS or path.startswith("/ui/")}
        assert found - documented - open_to_all <= _HIDDEN, "a route that the OpenAPI document lacks is not tested here"
        for path in _HIDDEN:
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                assert (await it.http.request(method, path)).status_code == 401, path


def all_paths(http: httpx.AsyncClient) -> set[str]:
    """Paths of all routes, whether the document has them or not."""
    routes = [*http.app.routes, *(route for router in ROUTERS for route in router.routes)]  # type: ignore[attr-defined]
    return {path for route in routes if (path := getattr(route, "path", None))}


async def test_every_route_wants_a_scope(harbour_template: Path) -> None:
    async with world(harbour_template) as it:
        limited = {scope: bearer(make_key(tenant="east", scopes=[scope])) for scope in (Scope.SEARCH, Scope.WRITE)}
        for operation in it.operations:
            refused = {}
            for scope, headers in limited.items():
                response = await it.ask(operation, ABSENT, headers)
                if response.status_code == 403:
                    assert code_of(response) == "missing_scope", operation
                    refused[scope] = response.json()["error"]["message"]
            if operation.path in OPEN_PATHS:
                assert not refused, operation
                continue
            assert refused, f"{operation} does not care what a key is for"
            changes = operation.method in ("PUT", "PATCH", "DELETE") and not operation.path.startswith("/v1/searches")
            if changes or (operation.method == "POST" and operation.path.startswith(("/v1/collections", "/v1/jobs"))):
                assert "'write'" in refused[Scope.SEARCH], operation
            if operation.path == "/metrics":
                assert set(refused) == {Scope.SEARCH, Scope.WRITE}


async def test_tenants_may_use_the_same_name(harbour_template: Path) -> None:
    settle(harbour_template, "harbour")
    tiny("north/harbour", "The north has a yard, too.")
    tiny("south/harbour", "In the south there is a yard.")
    texts = {}
    async with keyed(PUBLIC, host="0.0.0.0", api_key="k") as http:  # the default collection is `harbour` for each
        for tenant in ("", "north", "south"):
            response = await http.post("/v1/search", json=SEARCH, headers=bearer(make_key(tenant=tenant)))
            texts[tenant] = {result["text"] for result in response.json()["results"]}
            assert f"{tenant}/" not in response.text or not tenant
    assert texts["north"] == {"The north has a yard, too."}
    assert texts["south"] == {"In the south there is a yard."}
    assert not texts[""] & (texts["north"] | texts["south"])


@pytest.mark.parametrize("name", ["north/harbour", "/harbour", "../north/collections/harbour", "north%2Fharbour", ".."])
@pytest.mark.parametrize("tenant", ["", "south"])
async def test_names_do_not_reach_across(harbour_template: Path, name: str, tenant: str) -> None:
    settle(harbour_template, "north/harbour")
    settle(harbour_template, "harbour")
    token = make_key(tenant=tenant, scopes=[Scope.ADMIN])
    async with keyed(PUBLIC, host="0.0.0.0") as http:
        response = await http.post("/v1/search", json={**SEARCH, "collections": [name]}, headers=bearer(token))
        assert (response.status_code, code_of(response)) == (422, "invalid_field")
        absent = name.replace("north", "nowhere").replace("harbour", "nothing")
        other = await http.post("/v1/search", json={**SEARCH, "collections": [absent]}, headers=bearer(token))
        assert other.status_code == 422
        for path in ("/v1/collections/{}", "/v1/vector_stores/{}", "/v1/collections/{}/documents/ferry.md"):
            assert (await http.get(path.format(name), headers=bearer(token))).status_code in (404, 405, 422)


async def test_errors_name_only_what_the_caller_has(harbour_template: Path) -> None:
    for name in ("harbour", "north/first", "north/second", "south/other"):
        settle(harbour_template, name)

    async def message(http: httpx.AsyncClient, tenant: str) -> str:
        body = {**SEARCH, "collections": ["absent"]}
        response = await http.post("/v1/search", json=body, headers=bearer(make_key(tenant=tenant)))
        assert (response.status_code, code_of(response)) == (404, "collection_not_found")
        return str(response.json()["error"]["message"])

    absent = "there is no collection 'absent'; this server has "
    async with keyed(PUBLIC, host="0.0.0.0", api_key="k") as http:
        assert await message(http, "") == absent + "harbour"
        assert await message(http, "north") == absent + "first, second"
        assert await message(http, "south") == absent + "other"
        assert await message(http, "east") == absent + "none yet"
    async with keyed(PUBLIC, host="0.0.0.0", api_key="k", only=("north/second", "harbour")) as http:
        assert await message(http, "") == absent + "harbour"
        assert await message(http, "north") == absent + "second"
        assert await message(http, "south") == absent + "none yet"
        for tenant, name, status in (("north", "second", 200), ("north", "first", 404), ("", "second", 404)):
            body = {**SEARCH, "collections": [name]}
            response = await http.post("/v1/search", json=body, headers=bearer(make_key(tenant=tenant)))
            assert response.status_code == status


async def test_a_default_of_one_tenant_is_a_plain_name(harbour_template: Path) -> None:
    """As `thresher serve -c north/harbour` sets it."""
    settle(harbour_template, "north/harbour")
    async with keyed(PUBLIC, host="0.0.0.0", collection="north/harbour", api_key="k") as http:
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(make_key(tenant="north")))).status_code == 200
        response = await http.post("/v1/search", json=SEARCH, headers=bearer("k"))
        assert (response.status_code, code_of(response)) == (404, "collection_not_found")


async def test_what_a_busy_collection_answers_has_its_plain_name(
    harbour_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thresher.api.service.registry.PATIENCE_S", 0.1)
    settle(harbour_template, "north/harbour")
    async with keyed(PUBLIC, host="0.0.0.0", api_key="k") as http:
        registry: Any = http.app.state.registry  # type: ignore[attr-defined]
        with registry.closed("north/harbour", "restore"):
            response = await http.post("/v1/search", json=SEARCH, headers=bearer(make_key(tenant="north")))
    assert code_of(response) == "collection_busy"
    assert response.json()["error"]["message"].startswith("collection 'harbour' is in use (restore)")


def test_the_command_line_works_on_a_tenants_collections(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("The yard stood in Port Ellin.")
    options = ["-c", "north/letters", "--json"]
    assert Outcome("ingest", tmp_path / "note.txt", "--embedder", "wordllama", *options).code == 0
    assert collection_path("north/letters").is_dir()
    found = Outcome("search", "yard", "--effort", "minimal", *options).json["results"]
    assert [result["text"] for result in found] == ["The yard stood in Port Ellin."]
    assert "letters" not in Outcome("ls").out
