"""A server with keys and tenants, in this process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.service.database import Database, server_database
from thresher.api.service.keys import Keys
from thresher.corpus.paths import collection_path

PUBLIC = "http://search.example"
SEARCH = {"query": "yard", "effort": "minimal"}


@contextmanager
def key_store(**given: Any) -> Iterator[Keys]:
    """The keys of THRESHER_HOME, as another process has them."""
    with closing(Database(server_database())) as database, closing(Keys(database, **given)) as keys:
        yield keys


def make_key(**given: Any) -> str:
    """A new key; for what it may be given see `Keys.create`."""
    with key_store() as keys:
        return keys.create(**given)[1]


def key_id(token: str) -> str:
    """The part of a key that is no secret."""
    return token.split("_")[1]


def bearer(token: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {token}"}


def settle(template: Path, name: str) -> str:
    """Copy a closed collection to that qualified name."""
    shutil.copytree(template, collection_path(name))
    return name


@asynccontextmanager
async def keyed(
    url: str = "http://localhost",
    *,
    client: str = "127.0.0.1",
    only: tuple[str, ...] = (),
    policy: Any = None,
    **settings: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with these settings, as if it came from the address `client`."""
    fixed = {"collection": "harbour", "chroma": "in-process", "embedder": "wordllama", "save_traces": False}
    app = create_app(Settings(**{**fixed, **settings}), only=only, policy=policy)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(client, 40_000))
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=url) as http:
        http.app = app  # type: ignore[attr-defined]
        yield http


def code_of(response: httpx.Response) -> str:
    """The code of an error."""
    code: str = response.json()["error"]["code"]
    return code
