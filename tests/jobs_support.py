"""The application as tests of collections, documents and jobs ask it: in this process, with its real parts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from thresher.api.config import Settings
from thresher.api.http import create_app

PATIENCE_S = 60
ENDED = ("succeeded", "failed", "cancelled")


@asynccontextmanager
async def running(*, only: tuple[str, ...] = (), **settings: Any) -> AsyncIterator[FastAPI]:
    """An application that has started; what `settings` leaves out is as tests want it."""
    app = create_app(
        Settings(**{"collection": "harbour", "chroma": "in-process", "embedder": "wordllama", **settings}), only=only
    )
    async with app.router.lifespan_context(app):
        yield app


def talking(app: FastAPI, key: str | None = None) -> httpx.AsyncClient:
    """A client of it."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {} if key is None else {"X-API-Key": key}
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8420", headers=headers)


@asynccontextmanager
async def asking(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application of its own."""
    async with running(**settings) as app, talking(app) as http:
        yield http


async def ended(http: httpx.AsyncClient, job: httpx.Response | str) -> dict[str, Any]:
    """A job when it has ended."""
    if isinstance(job, httpx.Response):
        assert job.status_code == 202, job.text
        job_id = job.json()["id"]
    else:
        job_id = job
    return await stands(http, job_id, *ENDED)


async def stands(http: httpx.AsyncClient, job_id: str, *statuses: str) -> dict[str, Any]:
    """A job when it stands so."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = await http.get(f"/v1/jobs/{job_id}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        if found["status"] in statuses:
            return found
        assert time.monotonic() < deadline, f"the job stays {found}"
        await asyncio.sleep(0.02)


def parts(files: Iterable[tuple[str, str | bytes]]) -> list[tuple[str, tuple[str, bytes]]]:
    """Files as httpx sends them."""
    return [("files", (name, data.encode() if isinstance(data, str) else data)) for name, data in files]


async def uploaded(http: httpx.AsyncClient, collection: str, *files: tuple[str, str | bytes]) -> dict[str, Any]:
    """The job that has read some files."""
    return await ended(http, await http.post(f"/v1/collections/{collection}/files", files=parts(files)))


def error_of(response: httpx.Response, status: int, code: str) -> str:
    """The message of an error, which has the one shape."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"type", "code", "message", "param", "request_id"}
    assert error["code"] == code
    return str(error["message"])


def frames(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """(id, event, data) of each frame of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found
