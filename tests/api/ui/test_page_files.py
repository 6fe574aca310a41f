"""What the server says of the page's files. No browser needed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.http.routes.ui import ui_files


@asynccontextmanager
async def client(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(**{"chroma": "in-process", **settings}))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as made,
    ):
        yield made


async def test_the_root_and_the_folder_lead_to_the_page() -> None:
    async with client() as http:
        for path in ("/", "/ui/"):
            answer = await http.get(path)
            assert answer.status_code == 307
            assert not answer.headers["location"].startswith(("/", "http"))  # a proxy may have it below a path
            assert str(answer.url.join(answer.headers["location"])) == "http://localhost/ui"
        assert (await http.get("/ui")).headers["content-type"] == "text/html; charset=utf-8"


async def test_nothing_but_the_server_itself_may_be_loaded_or_asked() -> None:
    async with client() as http:
        for name in ("", *(f"/{name}" for name in ui_files() if name != "index.html")):
            answer = await http.get(f"/ui{name}")
            assert answer.status_code == 200, name
            policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
            assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_files_name_no_other_server_and_make_no_markup_of_text() -> None:
    for name, file in ui_files().items():
        text = file.body.decode()
        urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not urls, name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick="):
            assert word not in text, f"{word} in {name}"


def test_the_page_is_small() -> None:
    files = ui_files().values()
    assert sum(len(file.packed) for file in files) < 48_000  # what is sent
    assert sum(len(file.body) for file in files) < 125_000


async def test_what_a_browser_has_is_not_sent_again() -> None:
    async with client() as http:
        first = await http.get("/ui/app.js")
        assert first.headers["cache-control"] == "no-cache"
        assert first.headers["content-encoding"] == "gzip"
        tag = first.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await http.get("/ui/app.js", headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
        assert (await http.get("/ui/app.js", headers={"If-None-Match": '"other"'})).status_code == 200
        plain = await http.get("/ui/app.js", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.headers["etag"] != tag
        assert plain.text == first.text
        head = await http.head("/ui/app.js")
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("path", ["/ui/nothing.js", "/ui/__init__.py", "/ui/..%2f__init__.py", "/ui/index.html"])
async def test_no_other_file_is_served(path: str) -> None:
    async with client() as http:
        answer = await http.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "route_not_found"


async def test_the_page_needs_no_key_and_is_no_part_of_the_api() -> None:
    async with client(host="search.example", api_key="s3cret") as http:
        for path in ("/ui", "/ui/app.js", "/ui/style.css", "/ui/icon.svg"):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.get("/v1/searches")).status_code == 401
        document = (await http.get("/openapi.json", headers={"X-API-Key": "s3cret"})).json()
        assert not [path for path in document["paths"] if path == "/" or path.startswith("/ui")]
