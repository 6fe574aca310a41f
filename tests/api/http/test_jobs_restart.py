"""A server that is killed in the middle of a job: the next one finishes it, and nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import PATIENCE_S, Served, documents_in, serving, thresher, wait_until
from jobs_support import frames, parts

from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path, home

RECORDS = 12_000
pytestmark = pytest.mark.slow


def job_of(server: Served, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/v1/jobs/{job_id}", timeout=PATIENCE_S).json()
    return found


def begin(server: Served) -> str:
    """A job that takes a while."""
    lines = (
        json.dumps({"id": f"r{number}", "text": f"Record {number} of the harbour of Port Ellin, pier {number % 97}."})
        for number in range(RECORDS)
    )
    files = [("log.jsonl", "\n".join(lines)), *((f"n{number}.md", f"Note {number}.") for number in range(20))]
    response = httpx.post(f"{server.url}/v1/collections/harbour/files", files=parts(files), timeout=PATIENCE_S)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


@pytest.fixture
def harbour(thresher_home: Path) -> str:
    Collection.create(collection_path("harbour"), load_embedder("wordllama")).close()
    return "harbour"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_is_finished_by_the_next_server(harbour: str, sent: signal.Signals) -> None:
    database = collection_path(harbour) / "corpus.db"
    with serving() as server:
        job_id = begin(server)
        wait_until(lambda: documents_in(database) > 500, "in the middle")
        os.kill(server.process.pid, sent)
        server.process.communicate(timeout=PATIENCE_S)
    written = documents_in(database)
    assert 500 < written < RECORDS, "it was to be killed in the middle"
    with closing(sqlite3.connect(home() / "server.db")) as connection:
        (status,) = connection.execute("SELECT status FROM jobs").fetchone()
    assert status == ("running" if sent is signal.SIGKILL else "queued")

    with serving() as server:
        told = frames(httpx.get(f"{server.url}/v1/jobs/{job_id}/events", timeout=PATIENCE_S).text)
        job = job_of(server, job_id)
        assert (told[-1][1], told[-1][2]) == ("job.succeeded", {"job": job})
        assert (job["status"], job["attempts"]) == ("succeeded", 2 if sent is signal.SIGKILL else 1)
        assert (job["result"]["documents"], job["progress"]["share"]) == (RECORDS + 20, 1.0)
        # What was acknowledged before was not done again.
        assert job["progress"]["documents"] <= RECORDS + 20 - written
        seen = httpx.get(f"{server.url}/v1/collections/harbour", timeout=PATIENCE_S).json()
        assert seen["documents"] == RECORDS + 20
        assert [hit["document_id"] for hit in server.search("record 11999 pier 68", harbour)][:1] == ["r11999"]
        beside = json.loads(thresher("verify", harbour, "--json").stdout)
        assert (beside["ok"], beside["documents"]) == (True, RECORDS + 20)
    with closing(sqlite3.connect(database)) as connection:
        (rows, distinct) = connection.execute("SELECT count(id), count(DISTINCT id) FROM documents").fetchone()
    assert rows == distinct == RECORDS + 20
    assert [path for path in (home() / "uploads").rglob("*") if path.is_file()] == []


def test_a_server_that_lives_takes_over_from_one_that_was_killed(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as first, serving() as second:
        job_id = begin(first)
        wait_until(lambda: documents_in(collection_path(harbour) / "corpus.db") > 500, "in the middle")
        assert job_of(second, job_id)["status"] == "running"
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.communicate(timeout=PATIENCE_S)
        told = frames(httpx.get(f"{second.url}/v1/jobs/{job_id}/events", timeout=PATIENCE_S).text)
        assert told[-1][1] == "job.succeeded"
        assert told[-1][2]["job"]["attempts"] == 2
