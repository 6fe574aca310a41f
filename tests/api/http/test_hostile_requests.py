"""No request makes an error of the server's own: every route of the document is sent what no honest client sends."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.http.examples import JSON
from thresher.api.http.openapi import operations

Json = dict[str, Any]
NASTY_IDS = (
    "%00",
    "x%00y",
    "%ff%fe",
    "%ed%a0%80",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "a" * 3000,
    "%0d%0aX-Evil:1",
    "'--",
)
NASTY_TEXTS = ("\x00", "x\x00y", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "{{7*7}}", "a" * 70_000, "")
NASTY_NUMBERS = (10**400, -(10**400), 2**63, -1, 1e308, float("inf"), float("nan"), True, None, "1", [], {})
NASTY_BODIES = (
    b"",
    b"null",
    b"[]",
    b"true",
    b'"text"',
    b"{",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b'{"query": "\xed\xa0\x80"}',
    b"[" * 100_000,
    b'{"filters":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"query":"a","query":["b"]}',
)
NASTY_TYPES = (
    "text/plain",
    "application/xml",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
    "a/b;c=\xff",
)


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(
        Settings(collection="harbour", chroma="in-process", embedder="wordllama", effort="minimal", save_traces=False)
    )
    # What is raised here would be a traceback in the log of a server.
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as made,
    ):
        made.app = app  # type: ignore[attr-defined]
        yield made


def routes(http: httpx.AsyncClient) -> list[tuple[str, str, Json]]:
    found = list(operations(http.app.openapi()))  # type: ignore[attr-defined]
    assert len(found) > 40
    return found


def check(place: str, response: httpx.Response) -> None:
    """Whatever it is answered with, it is no failure of the server, and an error has the one shape."""
    assert response.status_code < 500, f"{place}: {response.status_code} {response.text[:500]}"
    if response.status_code >= 400:
        assert response.headers["content-type"] == JSON, place
        error = response.json()["error"]
        assert {"type", "code", "message", "param", "request_id"} <= set(error), place
        assert "Traceback" not in response.text


def address(path: str, value: str = "harbour") -> str:
    """The path with `value` for each of its parameters."""
    return "/".join(value if part.startswith("{") else part for part in path.split("/"))


async def test_ids_that_nothing_can_have(harbour: str) -> None:
    async with client() as http:
        with_ids = [(path, method, operation) for path, method, operation in routes(http) if "{" in path]
        assert len(with_ids) > 20
        for path, method, operation in with_ids:
            body = example_of(operation, http)
            for value in NASTY_IDS:
                for filled in {
                    address(path, value),
                    path.replace("{collection}", "harbour").replace("{document_id}", value),
                }:
                    if "{" not in filled:
                        response = await http.request(method, filled, json=body)
                        check(f"{method} {filled[:80]}", response)


async def test_queries_and_headers_that_mean_nothing(harbour: str) -> None:
    async with client() as http:
        values = ("%00", "%ff", "-1", "9" * 400, "1e9", "nan", "", "%ed%a0%80", "a" * 3000)
        for path, method, operation in routes(http):
            for parameter in operation.get("parameters", ()):
                for value in values:
                    place = f"{method} {path} {parameter['name']}={value[:20]}"
                    if parameter["in"] == "query":
                        check(place, await http.request(method, f"{address(path)}?{parameter['name']}={value}"))
                    elif parameter["in"] == "header":
                        raw = value.encode().replace(b"%00", b"\xff")
                        headers = [(parameter["name"].encode(), raw)]
                        check(
                            place,
                            await http.request(
                                method, address(path), headers=headers, json=example_of(operation, http)
                            ),
                        )


async def test_bodies_that_are_no_requests(harbour: str) -> None:
    async with client() as http:
        for path, method, operation in routes(http):
            if "requestBody" not in operation:
                continue
            for body in NASTY_BODIES:
                response = await http.request(method, address(path), content=body, headers={"Content-Type": JSON})
                check(f"{method} {path} {body[:40]!r}", response)
            for kind in NASTY_TYPES:
                headers = [(b"content-type", kind.encode("latin-1"))]
                response = await http.request(method, address(path), content=b'{"query":"fog"}', headers=headers)
                check(f"{method} {path} as {kind!r}", response)


async def test_values_that_no_field_can_have(harbour: str) -> None:
    async with client() as http:
        sent = 0
        for path, method, operation in routes(http):
            body = example_of(operation, http)
            if body is None:
                continue
            for place, spoiled in spoilt(body):
                content = json.dumps(spoiled).encode()
                response = await http.request(method, address(path), content=content, headers={"Content-Type": JSON})
                check(f"{method} {path} {place}", response)
                sent += 1
            response = await http.request(method, address(path), json={**body, "no_such_field": 1})
            check(f"{method} {path}", response)
            if not any(tag.startswith("door") for tag in operation["tags"]):
                assert response.status_code in (404, 422), f"{method} {path} takes fields that it does not know"
                if response.status_code == 422:
                    assert response.json()["error"]["param"] == "no_such_field", path
        assert sent > 200


def example_of(operation: Json, http: httpx.AsyncClient) -> Json | None:
    """A body that the route takes as far as its schema goes."""
    media = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if media is None:
        return None
    schemas = http.app.openapi()["components"]["schemas"]  # type: ignore[attr-defined]
    schema = media["schema"]
    for choice in (schema, *schema.get("anyOf", ())):
        model = schemas.get(choice.get("$ref", "").rpartition("/")[2], choice)
        if model.get("examples"):
            found = [example for example in model["examples"] if example]
            return at_home(found[-1])
    return at_home(media.get("example") or next(iter(media["examples"].values()))["value"])


def at_home(example: Json) -> Json:
    """The example, of what there is here, and quick."""
    text = json.dumps(example).replace('"letters"', '"harbour"').replace('"reports"', '"harbour"')
    body: Json = json.loads(text)
    for name in ("stream", "background", "rerank"):
        body.pop(name, None)
    if "effort" in body:
        body["effort"] = "minimal"
    return body


def spoilt(body: Json) -> Iterator[tuple[str, Json]]:
    """The body with one value in it made bad, one after the other."""
    for place in leaves(body):
        current = body
        for step in place[:-1]:
            current = current[step]
        original = current[place[-1]]
        bad = NASTY_TEXTS if isinstance(original, str) else NASTY_NUMBERS
        for value in bad:
            spoiled = copy.deepcopy(body)
            target = spoiled
            for step in place[:-1]:
                target = target[step]
            target[place[-1]] = value
            yield f"{place} = {str(value)[:20]!r}", spoiled


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*place, key))
    elif place:
        yield place
