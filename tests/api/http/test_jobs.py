"""Jobs over HTTP: begun, followed, cancelled, tried again, one after the other, remembered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import wait_until
from jobs_support import asking, ended, error_of, frames, running, stands, talking, uploaded

from thresher.api.operations.base import Operation, Reporter, Request, Target
from thresher.api.operations.local import LocalTarget
from thresher.api.operations.table import operation
from thresher.api.service.jobs import jobs
from thresher.api.service.jobs import kinds as job_kinds
from thresher.api.service.jobs import runner as job_runner
from thresher.api.service.jobs.jobs import MAX_UNFINISHED
from thresher.api.service.jobs.kinds import JobKind
from thresher.api.service.principal import LOCAL
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path


class Nothing(Request):
    """Takes no arguments."""


class Steps:
    """A job that goes on until it is let go or told to stop."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.go = threading.Event()
        self.begun: list[str] = []
        self.at_once = 0
        self.most = 0
        self.told = 0
        self.fail: Exception | None = None
        self._guard = threading.Lock()

    def run(self, target: Target, request: Request, reporter: Reporter) -> dict[str, Any]:
        with self._guard:
            self.begun.append(target.name)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        done = 0
        try:
            with target.open() as collection:
                self.running.set()
                while not self.go.wait(0.01):
                    done += 1
                    reporter.on_documents(done, 1_000)
                    self.told += 1
                if self.fail is not None:
                    raise self.fail
                return {"object": "verification", "chunks": collection.chunk_count}
        finally:
            with self._guard:
                self.at_once -= 1


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """`verify` is replaced by steps that the test controls."""
    made = Steps()
    kind = JobKind(Operation("steps", Nothing, made.run, single=True), lambda row, ocr: Nothing())
    monkeypatch.setitem(job_kinds.KINDS, "verify", kind)
    monkeypatch.setattr(job_runner, "TELL_S", 0.0)
    yield made
    made.go.set()


async def begin(http: httpx.AsyncClient, collection: str = "harbour", **headers: str) -> str:
    response = await http.post(f"/v1/collections/{collection}/verify", headers=headers)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/v1/jobs/{response.json()['id']}"
    return str(response.json()["id"])


async def set_(event: threading.Event) -> None:
    await asyncio.to_thread(wait_until, event.is_set, "set")


async def test_upkeep_runs_as_jobs(harbour: str) -> None:
    async with asking() as http:
        verified = await ended(http, await http.post("/v1/collections/harbour/verify"))
        rebuilt = await ended(http, await http.post("/v1/collections/harbour/rebuild"))
        compacted = await ended(http, await http.post("/v1/collections/harbour/compact", json={"erase": True}))
        listed = (await http.get("/v1/jobs")).json()
        compacts = (await http.get("/v1/jobs", params={"kind": "compact", "status": "succeeded"})).json()
        page = (await http.get("/v1/jobs", params={"limit": 2})).json()
        rest = (await http.get("/v1/jobs", params={"limit": 2, "after": page["next"]})).json()
        unknown = await http.get("/v1/jobs", params={"after": "job_nobody"})
    assert [job["status"] for job in (verified, rebuilt, compacted)] == ["succeeded"] * 3
    assert verified["result"]["ok"] is True
    assert (verified["result"]["chunks"], rebuilt["result"]["chunks"], compacted["result"]["chunks"]) == (6, 6, 6)
    assert (verified["object"], verified["kind"], verified["collection"]) == ("job", "verify", "harbour")
    assert (verified["attempts"], verified["error"], verified["cancelling"]) == (1, None, False)
    assert verified["created_at"] <= verified["started_at"] <= verified["ended_at"]
    assert [job["id"] for job in listed["data"]] == [compacted["id"], rebuilt["id"], verified["id"]]
    assert (listed["object"], listed["has_more"], listed["next"]) == ("list", False, None)
    assert [job["id"] for job in compacts["data"]] == [compacted["id"]]
    assert [job["id"] for job in page["data"] + rest["data"]] == [job["id"] for job in listed["data"]]
    assert (page["has_more"], rest["has_more"]) == (True, False)
    error_of(unknown, 422, "invalid_cursor")


async def test_reindex_takes_only_embedders_that_reach_nothing(harbour: str) -> None:
    async with asking() as http:
        for spec in ("st:/etc", "openai:m@http://169.254.169.254/v1", "nonsense"):
            message = error_of(
                await http.post("/v1/collections/harbour/reindex", json={"embedder": spec}), 422, "unknown_embedder"
            )
            assert spec not in message
        error_of(await http.post("/v1/collections/harbour/reindex", json={"chunker": "no"}), 422, "unknown_chunker")
        job = await ended(http, await http.post("/v1/collections/harbour/reindex", json={"chunker": "structure-1:100"}))
        seen = (await http.get("/v1/collections/harbour")).json()
    assert (job["status"], job["progress"]["done"], job["progress"]["unit"]) == ("succeeded", 3, "documents")
    assert seen["chunker"] == job["result"]["chunker"] == "structure-1:100"


async def test_a_job_is_followed_and_come_back_to(harbour: str, steps: Steps) -> None:
    async with asking() as http:
        job_id = await begin(http)
        await set_(steps.running)
        following = asyncio.create_task(http.get(f"/v1/jobs/{job_id}/events"))
        await asyncio.to_thread(wait_until, lambda: steps.told > 1, "told of a step")
        steps.go.set()
        told = frames((await following).text)
        again = frames((await http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "2"})).text)
        late = frames((await http.get(f"/v1/jobs/{job_id}/events", params={"after": told[-1][0]})).text)
        job = (await http.get(f"/v1/jobs/{job_id}")).json()
        error_of(await http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "x"}), 422, "invalid_field")
    numbers = [number for number, _, _ in told]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], told[0][1], told[-1][1]) == (1, "job.created", "job.succeeded")
    assert {kind for _, kind, _ in told[1:-1]} <= {"job.progress"}
    assert told[-1][2] == {"job": job}
    assert again == late == [told[-1]]
    assert job["result"]["chunks"] == 6
    assert 0 < job["progress"]["share"] < 1
    assert job["progress"]["rate"] > 0


async def test_a_queued_job_is_cancelled_at_once_and_a_running_one_at_its_next_step(harbour: str, steps: Steps) -> None:
    async with asking() as http:
        first, second = await begin(http), await begin(http)
        await set_(steps.running)
        assert (await http.get(f"/v1/jobs/{second}")).json()["status"] == "queued"
        cancelled = (await http.post(f"/v1/jobs/{second}/cancel")).json()
        assert (cancelled["status"], cancelled["attempts"]) == ("cancelled", 0)
        assert (await http.post(f"/v1/jobs/{first}/cancel")).status_code == 200
        job = await ended(http, first)
        assert (job["status"], job["error"], job["result"], job["cancelling"]) == ("cancelled", None, None, False)
        assert (await http.post(f"/v1/jobs/{first}/cancel")).json() == job
        told = frames((await http.get(f"/v1/jobs/{first}/events")).text)
        assert told[-1][1] == "job.cancelled"
        assert steps.begun == ["harbour"]

        steps.go.set()
        again = await http.post(f"/v1/jobs/{first}/retry")
        assert (again.status_code, again.json()["status"]) == (202, "queued")
        job = await ended(http, first)
        assert (job["status"], job["attempts"]) == ("succeeded", 2)
        error_of(await http.post(f"/v1/jobs/{first}/retry"), 409, "job_not_retryable")


async def test_a_job_that_fails_says_why_and_can_be_tried_again(
    harbour: str, steps: Steps, thresher_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps.go.set()
    steps.fail = ZeroDivisionError(f"a secret in {thresher_home}")
    async with asking() as http:
        job = await ended(http, await begin(http))
        assert job["status"] == "failed"
        assert (job["error"]["code"], job["error"]["type"]) == ("internal_error", "api_error")
        assert "secret" not in str(job)
        assert str(thresher_home) in caplog.text
        told = frames((await http.get(f"/v1/jobs/{job['id']}/events")).text)
        assert told[-1][1:] == ("job.failed", {"job": job})
        steps.fail = None
        await http.post(f"/v1/jobs/{job['id']}/retry")
        job = await ended(http, job["id"])
    assert (job["status"], job["error"], job["attempts"]) == ("succeeded", None, 2)


async def test_one_job_on_a_collection_and_a_few_at_once(harbour: str, steps: Steps) -> None:
    for name in ("alpha", "beta"):
        Collection.create(collection_path(name), load_embedder("wordllama")).close()
    async with asking(max_jobs=2) as http:
        jobs = [await begin(http, name) for name in ("harbour", "harbour", "alpha", "beta")]
        await asyncio.to_thread(wait_until, lambda: len(steps.begun) == 2, "two running")
        status = [(await http.get(f"/v1/jobs/{job}")).json()["status"] for job in jobs]
        assert status == ["running", "queued", "running", "queued"]
        steps.go.set()
        for job in jobs:
            assert (await ended(http, job))["status"] == "succeeded"
    assert steps.most == 2
    assert sorted(steps.begun) == ["alpha", "beta", "harbour", "harbour"]


async def test_a_collection_that_a_command_works_on_is_waited_for(harbour: str, steps: Steps) -> None:
    steps.go.set()
    async with running() as app, talking(app) as http:
        with app.state.registry.task("harbour", "ingest"):
            job_id = await begin(http)
            await asyncio.sleep(1.2)  # longer than a look
            assert (await http.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"
            assert steps.begun == []
        assert (await ended(http, job_id))["attempts"] == 1


async def test_a_collection_that_another_process_has_is_waited_for(harbour: str, steps: Steps) -> None:
    steps.go.set()
    async with asking() as http:
        with LocalTarget("harbour").open():
            job_id = await begin(http)
            await asyncio.to_thread(wait_until, lambda: steps.begun, "begun")
            await stands(http, job_id, "queued")
        job = await ended(http, job_id)
    assert (job["status"], job["attempts"]) == ("succeeded", 1)


async def test_an_idempotency_key_begins_one_job(harbour: str, steps: Steps) -> None:
    async with asking() as http:
        key = {"Idempotency-Key": "once"}
        first = await begin(http, **key)
        assert await begin(http, **key) == first
        steps.go.set()
        await ended(http, first)
        assert await begin(http, **key) == first
        other = await http.post("/v1/collections/harbour/rebuild", headers=key)
        error_of(other, 422, "idempotency_mismatch")
        assert len((await http.get("/v1/jobs")).json()["data"]) == 1


async def test_jobs_have_a_limit(harbour: str, steps: Steps) -> None:
    async with running() as app, talking(app) as http:
        for _ in range(MAX_UNFINISHED):
            app.state.parts.jobs.start(LOCAL, "verify", "harbour")
        full = await http.post("/v1/collections/harbour/verify")
        error_of(full, 429, "too_many_jobs")
        assert int(full.headers["retry-after"]) > 0
        for job in (await http.get("/v1/jobs", params={"limit": 100, "status": "queued"})).json()["data"]:
            await http.post(f"/v1/jobs/{job['id']}/cancel")


async def test_what_is_not_there_is_404(harbour: str) -> None:
    async with asking() as http:
        for call in (http.get("/v1/jobs/job_x"), http.get("/v1/jobs/job_x/events")):
            error_of(await call, 404, "job_not_found")
        for verb in ("cancel", "retry"):
            error_of(await http.post(f"/v1/jobs/job_x/{verb}"), 404, "job_not_found")
        for verb in ("verify", "rebuild", "compact", "sync"):
            error_of(await http.post(f"/v1/collections/nowhere/{verb}"), 404, "collection_not_found")
        error_of(await http.post("/v1/collections/harbour/sync", json={"origin": "/etc"}), 422, "unknown_field")
        error_of(await http.post("/v1/collections/harbour/sync", json={"source_id": "x"}), 404, "source_not_found")
        error_of(await http.post("/v1/collections/harbour/sync"), 409, "no_origin")


async def test_sync_mirrors_what_the_operator_had_read_and_nothing_else(tmp_path: Path, thresher_home: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("one.md", "two.md", "three.md", "secret.txt"):
        (docs / name).write_text(f"The {name} speaks of the lighthouse.")
    pattern = docs / "*.md"
    ingest = operation("ingest")
    with_defaults = {"default_embedder": "wordllama"}
    ingest.run(LocalTarget("lights"), ingest.request(origins=[str(pattern)], **with_defaults), Reporter())
    async with asking() as http:
        await http.put("/v1/collections/lights/documents/put", json={"text": "Put about the lighthouse."})
        await uploaded(http, "lights", ("sent.md", "Sent about the lighthouse."))
        (docs / "two.md").unlink()
        (docs / "one.md").write_text("The one.md speaks of the lightship now.")
        (docs / "four.md").write_text("The four.md speaks of the lighthouse.")
        job = await ended(http, await http.post("/v1/collections/lights/sync"))
        assert job["status"] == "succeeded", job
        assert (job["result"]["removed"], job["result"]["origins"]) == (1, 1)
        assert job["result"]["counts"] == {"indexed": 2, "unchanged": 1}
        listed = (await http.get("/v1/collections/lights/documents")).json()["data"]
        assert [document["id"] for document in listed] == ["four.md", "one.md", "put", "sent.md", "three.md"]
        found = await http.post("/v1/search", json={"query": "two.md", "effort": "minimal", "collections": ["lights"]})
        assert "two.md" not in {result["document_id"] for result in found.json()["results"]}

        (docs / "one.md").write_text("The one.md speaks of fog.")
        (docs / "three.md").write_text("The three.md speaks of fog.")
        job = await ended(http, await http.post("/v1/collections/lights/sync", json={"source_id": "one.md"}))
        assert job["result"]["counts"] == {"indexed": 2, "unchanged": 1}
        error_of(await http.post("/v1/collections/lights/sync", json={"source_id": "sent.md"}), 409, "no_origin")
        error_of(await http.post("/v1/collections/lights/sync", json={"source_id": "api"}), 409, "no_origin")

        # A disk that is not mounted is not an empty one.
        docs.rename(tmp_path / "away")
        job = await ended(http, await http.post("/v1/collections/lights/sync"))
        assert (job["status"], job["error"]["code"]) == ("failed", "root_unreadable")
        assert str(tmp_path) not in str(job)
        assert len((await http.get("/v1/collections/lights/documents")).json()["data"]) == 5


async def test_a_stopped_server_leaves_its_jobs_to_the_next(harbour: str, steps: Steps) -> None:
    async with asking() as http:
        first, second = await begin(http), await begin(http)
        await set_(steps.running)
    assert steps.at_once == 0
    steps.go.set()
    async with asking() as http:
        jobs = [await ended(http, job) for job in (first, second)]
    assert [(job["status"], job["attempts"]) for job in jobs] == [("succeeded", 1)] * 2


async def test_how_a_job_ended_is_kept_as_soon_as_the_database_can_be_written(
    harbour: str, steps: Steps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_runner, "LOOK_S", 0.05)
    async with running() as app, talking(app) as http:
        job_id = await begin(http)
        await set_(steps.running)
        with app.state.parts.database.write() as connection:
            connection.execute("ALTER TABLE jobs RENAME TO gone")
        steps.go.set()
        await asyncio.to_thread(wait_until, lambda: "cannot be kept yet: no such table" in caplog.text, "told")
        with app.state.parts.database.write() as connection:
            connection.execute("ALTER TABLE gone RENAME TO jobs")
        assert (await ended(http, job_id))["status"] == "succeeded"
    assert steps.begun == ["harbour"]


async def test_a_job_that_kills_its_servers_is_given_up(harbour: str, steps: Steps) -> None:
    steps.go.set()
    async with running() as app, talking(app) as http:
        background, database = app.state.parts.jobs, app.state.parts.database
        with app.state.registry.task("harbour", "ingest"):  # so that it stays in the queue
            job_id = await begin(http)
            for _ in range(job_runner.MAX_DEATHS):
                assert (await http.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"
                with database.write() as connection:
                    connection.execute("UPDATE jobs SET status = 'running', owner = 'srv_dead'")
                background._runner._adopt()
            job = (await http.get(f"/v1/jobs/{job_id}")).json()
            assert (job["status"], job["error"]["code"]) == ("failed", "given_up")
            assert (await http.post(f"/v1/jobs/{job_id}/retry")).status_code == 202
        assert (await ended(http, job_id))["status"] == "succeeded"


async def test_jobs_of_a_server_that_lives_are_left_alone(harbour: str, steps: Steps) -> None:
    async with asking() as http:
        job_id = await begin(http)
        await set_(steps.running)
        async with asking() as other:
            assert (await other.get(f"/v1/jobs/{job_id}")).json()["status"] == "running"
            following = asyncio.create_task(other.get(f"/v1/jobs/{job_id}/events"))
            assert (await other.post(f"/v1/jobs/{job_id}/cancel")).json()["cancelling"] is True
            told = frames((await following).text)
    assert told[-1][1] == "job.cancelled"
    assert steps.begun == ["harbour"]


async def test_a_job_that_does_not_stop_in_time_is_left_to_the_next(
    harbour: str, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "STOP_S", 0.1)
    going = threading.Event()

    def deaf(*_: Any) -> dict[str, Any]:
        steps.running.set()
        going.wait(60)
        return {"object": "verification"}

    kind = JobKind(Operation("steps", Nothing, deaf), lambda row, ocr: Nothing())
    with monkeypatch.context() as patch:
        patch.setitem(job_kinds.KINDS, "verify", kind)
        async with asking() as http:
            job_id = await begin(http)
            await set_(steps.running)
    going.set()
    steps.go.set()
    async with asking() as http:
        job = await ended(http, job_id)
    assert (job["status"], job["attempts"], job["result"]["chunks"]) == ("succeeded", 1, 6)


def test_every_kind_has_an_operation_and_a_request() -> None:
    checked: dict[str, Callable[..., Any]] = {name: kind.operation.run for name, kind in job_kinds.KINDS.items()}
    assert set(checked) == {"ingest", "sync", "verify", "rebuild", "compact", "reindex"}
