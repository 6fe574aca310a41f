"""`/readyz`: it names what is down, tells administrators why, and is cheap."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from stub_model import Reply, StubModel, serve_model

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.http.parts import Parts
from thresher.api.service.monitoring import readiness

ALL_OK = {"running", "database", "storage", "collections", "embedder"}


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    app = create_app(Settings(**{"collection": "harbour", "chroma": "in-process", "effort": "minimal", **settings}))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8420") as made,
    ):
        yield made, app


@pytest.fixture
def nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is checked anew."""
    monkeypatch.setattr(readiness, "LOCAL_S", 0.0)
    monkeypatch.setattr(readiness, "REMOTE_S", 0.0)


async def ask(http: httpx.AsyncClient, status: int = 200, **headers: str) -> tuple[str, dict[str, dict[str, str]]]:
    response = await http.get("/readyz", headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["cache-control"] == "no-store"
    body = response.json()
    assert set(body) == {"status", "checks"}
    return body["status"], body["checks"]


def down(checks: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] != "ok"}


async def test_a_server_that_is_well(harbour: str) -> None:
    async with served() as (http, _):
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200
        status, checks = await ask(http)
    assert (status, set(checks), down(checks)) == ("ready", ALL_OK, set())
    assert checks["collections"]["detail"] == "1 open"


async def test_stopping_is_unavailable(harbour: str) -> None:
    async with served() as (http, app):
        parts = app.state.parts
        assert isinstance(parts, Parts)
        parts.stopping.begin()
        status, checks = await ask(http, 503)
        assert (status, down(checks)) == ("unavailable", {"running"})
        assert (await http.get("/healthz")).status_code == 200  # it lives: nobody should kill it


async def test_without_its_database_no_search_is_served(harbour: str, thresher_home: Path, nothing_holds: None) -> None:
    async with served() as (http, _):
        file = thresher_home / "server.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # someone holds the right to write and does not give it back
            status, checks = await ask(http, 503)
            assert (status, down(checks)) == ("unavailable", {"database"})
            other.execute("ROLLBACK")
        assert (await ask(http))[0] == "ready"
        file.unlink()
        assert "is gone" in (await ask(http, 503))[1]["database"]["detail"]


async def test_a_full_disk_degrades(harbour: str, nothing_holds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (http, _):
        monkeypatch.setattr(readiness, "LEAST_FREE_BYTES", shutil.disk_usage("/").total * 1_000)
        status, checks = await ask(http)
        assert (status, down(checks)) == ("degraded", {"storage"})
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200


async def test_a_faulty_index_degrades_and_is_named(harbour: str, nothing_holds: None) -> None:
    async with served() as (http, app):
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200
        collection = app.state.parts.registry.opened()["harbour"]
        assert not collection.faults
        collection._dense._lost("nothing was open")  # no child has died: there is none yet
        assert not collection.faults
        collection._dense._leave("the Chroma child ended with signal 9")
        status, checks = await ask(http)
        assert (status, down(checks)) == ("degraded", {"collections"})
        assert "harbour: dense: the Chroma child ended with signal 9" in checks["collections"]["detail"]


async def test_the_model_server_is_asked_for_its_models_only(harbour: str, nothing_holds: None) -> None:
    with serve_model(always=Reply(status=500, error="no search was asked for")) as model:
        async with served(policy="chat:stub", model_url=model.url) as (http, _):
            status, checks = await ask(http)
            assert (status, set(checks)) == ("ready", ALL_OK | {"model"})
            assert checks["model"]["detail"] == f"{model.url}/models answers"
            assert model.requests == []
    async with served(policy=f"chat:stub@{model.url}") as (http, _):  # which is gone by now
        status, checks = await ask(http)
        assert (status, down(checks)) == ("degraded", {"model"})
        assert (await http.post("/v1/search", json={"query": "yard"})).status_code == 200


async def test_findings_hold_for_a_while_and_are_shared(harbour: str) -> None:
    with serve_model() as model:
        async with served(policy="chat:stub", model_url=model.url) as (http, _):
            for _ in range(5):
                await ask(http)
            assert model.connections == 1


async def test_an_embedding_server_that_is_down(harbour: str, nothing_holds: None) -> None:
    async with served(embedder="openai:bge@http://127.0.0.1:9/v1") as (http, _):
        status, checks = await ask(http)
        assert (status, down(checks)) == ("degraded", {"embedder"})


@pytest.mark.parametrize(("status", "key", "said"), [(401, None, "wants a key"), (403, "k", "refuses the key")])
async def test_a_model_server_that_lets_nobody_in(
    harbour: str, nothing_holds: None, status: int, key: str | None, said: str
) -> None:
    app = FastAPI()

    @app.get("/v1/models", status_code=status)
    async def models() -> dict[str, str]:
        return {}

    found = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readiness.httpx, "AsyncClient", lambda **_: found)
        with pytest.raises(readiness.Down, match=said):
            await readiness._ask("http://user:word@model/v1/models", key)


async def test_strangers_are_told_names_and_no_more(harbour: str, nothing_holds: None) -> None:
    with serve_model() as model:
        pass
    keyed: StubModel = model
    async with served(policy="chat:stub", model_url=keyed.url, api_key=SecretStr("s3cret-key")) as (http, _):
        _, checks = await ask(http)
        assert checks["model"] == {"status": "down"}
        assert all(set(check) == {"status"} for check in checks.values())
        _, checks = await ask(http, authorization="Bearer s3cret-key")
        assert "does not answer" in checks["model"]["detail"]
        assert (await http.get("/readyz", headers={"authorization": "Bearer wrong"})).status_code == 401
