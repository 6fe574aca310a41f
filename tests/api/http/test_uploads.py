"""Files over HTTP: taken in safely, read by a job, known by their name once they are gone."""

from __future__ import annotations

import asyncio
import json
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import wait_until
from hypothesis import given
from hypothesis import strategies as st
from jobs_support import asking, ended, error_of, parts, running, talking, uploaded
from live_support import live_server
from support import shared_data

from thresher.api.operations.base import Reporter
from thresher.api.operations.local import LocalTarget
from thresher.api.operations.table import operation
from thresher.api.service.jobs import jobs, spool
from thresher.api.service.jobs.spool import LONGEST_NAME, Spool, clear_abandoned, file_name
from thresher.corpus.collection import Collection
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.walk import LARGEST_FILE
from thresher.corpus.paths import collection_path, home

FILES = "/v1/collections/harbour/files"
DOCUMENTS = "/v1/collections/harbour/documents"


async def listed(http: httpx.AsyncClient, source_id: str | None = None) -> list[str]:
    params = {"limit": "100", **({} if source_id is None else {"source_id": source_id})}
    return [document["id"] for document in (await http.get(DOCUMENTS, params=params)).json()["data"]]


def spooled() -> list[str]:
    return [path.name for path in (home() / "uploads").rglob("*") if path.is_file()]


async def test_files_are_read_and_found_and_the_spool_is_gone(harbour: str) -> None:
    files = [
        ("tug.md", "# The Selkie\n\nThe tug Selkie towed the Alma."),
        (
            "crew.jsonl",
            '{"id": "c1", "text": "Ane was mate of the Selkie."}\n{"id": "c2", "text": "Jon was stoker."}\n',
        ),
        ("page.html", "<title>Ness</title><p>The lighthouse at Ness Point."),
        ("empty.txt", ""),
        ("tool.exe", b"MZ\x90"),
    ]
    async with asking() as http:
        response = await http.post(FILES, files=parts(files))
        assert response.headers["location"] == f"/v1/jobs/{response.json()['id']}"
        assert response.json()["files"] == [name for name, _ in files]
        job = await ended(http, response)
        assert (job["status"], job["kind"], job["progress"]["done"]) == ("succeeded", "ingest", 5)
        assert job["progress"]["share"] == 1.0
        assert job["result"]["counts"] == {"indexed": 3, "no_text": 1, "skipped": 1}
        reasons = {source["id"]: source["reason"] for source in job["result"]["sources"]}
        assert "no loader for .exe" in reasons["tool.exe"]
        assert set(await listed(http)) >= {"tug.md", "c1", "c2", "page.html"}
        tug = (await http.get(f"{DOCUMENTS}/tug.md")).json()
        assert (tug["url"], tug["source_id"], tug["title"]) == ("upload:tug.md", "tug.md", "The Selkie")
        mate = (await http.get(f"{DOCUMENTS}/c1")).json()
        assert (mate["url"], mate["source_id"]) == ("upload:crew.jsonl#c1", "crew.jsonl")
        found = (await http.post("/v1/search", json={"query": "lighthouse Ness Point", "effort": "minimal"})).json()
        assert found["results"][0]["document_id"] == "page.html"
        assert spooled() == []
        assert str(home()) not in json.dumps([job, tug, mate, found])


async def test_the_same_name_replaces_and_the_same_bytes_change_nothing(harbour: str) -> None:
    async with asking() as http:
        await uploaded(
            http, "harbour", ("log.jsonl", '{"id": "a", "text": "First."}\n{"id": "b", "text": "Second."}\n')
        )
        again = await uploaded(
            http, "harbour", ("log.jsonl", '{"id": "a", "text": "First."}\n{"id": "b", "text": "Second."}\n')
        )
        assert (again["result"]["counts"], again["result"]["embedded"]) == ({"unchanged": 1}, 0)
        other = await uploaded(http, "harbour", ("log.jsonl", '{"id": "a", "text": "First, corrected."}\n'))
        assert (other["result"]["removed"], await listed(http, "log.jsonl")) == (1, ["a"])
        text = (await http.get(f"{DOCUMENTS}/a", params={"include": "text"})).json()["text"]
        assert text == "First, corrected."
        # What was removed comes back when it is sent again.
        assert (await http.delete(f"{DOCUMENTS}/a")).status_code == 200
        back = await uploaded(http, "harbour", ("log.jsonl", '{"id": "a", "text": "First, corrected."}\n'))
        assert (back["result"]["counts"], await listed(http, "log.jsonl")) == ({"indexed": 1}, ["a"])


async def test_nothing_takes_an_upload_away(harbour: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "sent.md").write_text("A file of the operator's with the same name.")
    (docs / "own.md").write_text("Another file.")
    async with asking() as http:
        await uploaded(http, "harbour", ("sent.md", "Sent by a client."))
    with Collection.open(collection_path("harbour")) as collection:
        report = ingest(collection, [docs])
        assert {source.id: str(source.status) for source in report.sources} == {
            "own.md": "indexed",
            "sent.md": "failed",
        }
        assert "the uploaded file 'sent.md'" in str(report.sources)
        (docs / "sent.md").unlink()
        assert sync(collection, docs).removed == 0
        (docs / "own.md").unlink()
        assert sync(collection, docs, allow_empty=True).removed == 1
        assert collection.text("sent.md") == "Sent by a client."
    async with asking() as http:
        (docs / "own.md").write_text("Another file.")
        ingest_ = operation("ingest")
        await asyncio.to_thread(
            ingest_.run,
            LocalTarget("elsewhere"),
            ingest_.request(origins=[str(docs)], default_embedder="wordllama"),
            Reporter(),
        )
        refused = await uploaded(http, "elsewhere", ("own.md", "Not the operator's."))
        assert refused["result"]["counts"] == {"failed": 1}
        path = "/v1/collections/elsewhere/documents/own.md"
        assert (await http.get(path, params={"include": "text"})).json()["text"] == "Another file."


async def test_names_are_made_safe(harbour: str) -> None:
    given_ = [
        "../../etc/passwd.txt",
        "C:\\temp\\a.txt",
        "a.txt",
        "A.TXT",
        "/abs/.hidden.txt",
        "ev\u202eil.txt",
        "漢字.txt",
    ]
    async with asking() as http:
        job = await uploaded(http, "harbour", *((name, f"Text of {number}.") for number, name in enumerate(given_)))
        assert job["files"] == ["passwd.txt", "a.txt", "a (2).txt", "A (3).TXT", ".hidden.txt", "evil.txt", "漢字.txt"]
        assert job["result"]["counts"] == {"indexed": len(given_)}
        assert set(job["files"]) <= set(await listed(http))


@given(st.text(max_size=300), st.integers(1, 9))
def test_any_name_becomes_one_that_is_safe(given_: str, number: int) -> None:
    name = file_name(given_, number)
    assert 0 < len(name.encode()) <= LONGEST_NAME
    assert "/" not in name
    assert "\\" not in name
    assert name.strip(". ")
    assert name.isprintable()
    assert file_name(name, number) == name


def test_a_long_name_keeps_what_says_how_to_read_it() -> None:
    assert file_name("x" * 500 + ".pdf", 1).endswith("x.pdf")
    assert file_name("漢" * 500 + ".pdf", 1).endswith("漢.pdf")
    assert file_name("", 7) == file_name("...", 7) == "file-7"


async def test_files_are_for_this_user_alone(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    remove = jobs.remove_spool

    def look(tenant: str, job_id: str) -> None:
        for path in (home() / "uploads", *(home() / "uploads").rglob("*")):
            seen.append((path.name, stat.S_IMODE(path.stat().st_mode)))
        remove(tenant, job_id)

    monkeypatch.setattr("thresher.api.service.jobs.runner.remove_spool", look)
    async with asking() as http:
        job = await uploaded(http, "harbour", ("a.txt", "A text."))
    assert seen == [("uploads", 0o700), ("_", 0o700), (job["id"], 0o700), ("a.txt", 0o600)]


async def test_bodies_have_a_size_of_their_own(harbour: str) -> None:
    async with asking(max_body_bytes=2_000, max_upload_bytes=100_000) as http:
        job = await uploaded(http, "harbour", ("big.txt", "word " * 10_000))
        assert job["status"] == "succeeded"
        message = error_of(await http.post(FILES, files=parts([("b.txt", "x" * 100_000)])), 413, "body_too_large")
        assert "100,000" in message

        async def unannounced() -> Any:
            yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="c.txt"\r\n\r\n'
            for _ in range(11):
                yield b"x" * 10_000

        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        error_of(await http.post(FILES, content=unannounced(), headers=headers), 413, "body_too_large")
        error_of(await http.put(f"{DOCUMENTS}/x", json={"text": "x" * 2_000}), 413, "body_too_large")
        assert spooled() == []


async def test_forms_that_are_none_are_refused(harbour: str) -> None:
    start = b'--b\r\nContent-Disposition: form-data; name="files"; filename="c.txt"\r\n\r\nText.'
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    cases: list[tuple[bytes, dict[str, str], int, str]] = [
        (b"{}", {"Content-Type": "application/json"}, 415, "unsupported_media_type"),
        (b"", {}, 415, "unsupported_media_type"),
        (b"x", {"Content-Type": "multipart/form-data"}, 415, "unsupported_media_type"),
        (b"x", {"Content-Type": "multipart/form-data; boundary=" + "b" * 5_000}, 422, "invalid_multipart"),
        (b"no boundary in here", form, 422, "invalid_multipart"),
        (b"", form, 422, "invalid_multipart"),
        (start, form, 422, "invalid_multipart"),
        (b"--b--\r\n", form, 422, "invalid_field"),
        (start.replace(b"files", b"path") + b"\r\n--b--\r\n", form, 422, "unknown_field"),
        (start.replace(b'; filename="c.txt"', b"") + b"\r\n--b--\r\n", form, 422, "invalid_field"),
        (b"--b\r\n\r\nText.\r\n--b--\r\n", form, 422, "unknown_field"),
    ]
    async with asking() as http:
        for body, headers, status, code in cases:
            error_of(await http.post(FILES, content=body, headers=headers), status, code)
        many = parts((f"{number}.txt", "x") for number in range(1_001))
        error_of(await http.post(FILES, files=many), 422, "too_many_files")
        missing = await http.post("/v1/collections/nowhere/files", files=parts([("a.txt", "A.")]))
        error_of(missing, 404, "collection_not_found")
        assert (await http.get("/v1/jobs")).json()["data"] == []
    assert spooled() == []


def test_a_client_that_goes_away_leaves_nothing(harbour: str) -> None:
    with live_server() as url:
        begun = threading.Event()

        def half() -> Any:
            yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="c.txt"\r\n\r\n'
            yield b"x" * 70_000
            wait_until(spooled, "spooled")
            begun.set()
            raise ConnectionError("the client is gone")

        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        with httpx.Client(base_url=url, timeout=60) as http, pytest.raises(ConnectionError):
            http.post(FILES, content=half(), headers=headers)
        assert begun.is_set()
        wait_until(lambda: not spooled(), "cleared away")
        assert httpx.get(f"{url}/v1/jobs").json()["data"] == []


def test_a_disk_that_is_full_does_not_keep_the_spool(thresher_home: Path) -> None:
    written = Spool("", "job_full")
    written.begin("a.txt")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))  # as little as a full disk takes
    try:
        written.write(b"x" * 100)  # held back until the file is closed
        written.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not written.folder.exists()


async def test_a_key_that_comes_twice_reads_the_files_once(harbour: str) -> None:
    async with asking() as http:
        key = {"Idempotency-Key": "k"}
        files = parts([("a.txt", "A text.")])
        first = await http.post(FILES, files=files, headers=key)
        second = await http.post(FILES, files=files, headers=key)
        assert first.json()["id"] == second.json()["id"]
        other = await http.post(FILES, files=parts([("a.txt", "Another text.")]), headers=key)
        error_of(other, 422, "idempotency_mismatch")
        await ended(http, first)
        assert len((await http.get("/v1/jobs")).json()["data"]) == 1
    assert spooled() == []


async def test_a_job_that_fails_keeps_its_files_for_another_try(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as app, talking(app) as http:
        with monkeypatch.context() as patch:
            patch.setattr(
                "thresher.api.operations.handing_over.ingest_uploads",
                lambda *_, **__: (_ for _ in ()).throw(RuntimeError("broken")),
            )
            job = await uploaded(http, "harbour", ("a.txt", "A text."))
            assert (job["status"], job["error"]["code"]) == ("failed", "internal_error")
            assert spooled() == ["a.txt"]
        assert (await http.post(f"/v1/jobs/{job['id']}/retry")).status_code == 202
        job = await ended(http, job["id"])
        assert (job["status"], job["attempts"], await listed(http, "a.txt")) == ("succeeded", 2, ["a.txt"])

        with app.state.registry.task("harbour", "reindex"):
            queued = [(await http.post(FILES, files=parts([("b.txt", "B.")]))).json()["id"] for _ in range(3)]
            for job_id in queued:
                await http.post(f"/v1/jobs/{job_id}/cancel")
            monkeypatch.setattr(jobs, "KEPT_SPOOLS", 1)
            held = (await http.post("/v1/collections/harbour/verify")).json()["id"]
            assert len(spooled()) == 1
            error_of(await http.post(f"/v1/jobs/{queued[0]}/retry"), 409, "files_gone")
            assert (await http.post(f"/v1/jobs/{queued[2]}/retry")).status_code == 202
        assert (await ended(http, queued[2]))["status"] == "succeeded"
        await ended(http, held)


async def test_old_jobs_and_their_files_are_forgotten(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as app, talking(app) as http:
        with app.state.registry.task("harbour", "reindex"):
            job_id = (await http.post(FILES, files=parts([("b.txt", "B.")]))).json()["id"]
            await http.post(f"/v1/jobs/{job_id}/cancel")
            monkeypatch.setattr(jobs, "KEPT_S", -1.0)
            await http.post("/v1/collections/harbour/verify")
            error_of(await http.get(f"/v1/jobs/{job_id}"), 404, "job_not_found")
    assert spooled() == []
    abandoned = Spool("", "job_of_the_dead")
    abandoned.begin("a.txt")
    abandoned.end()
    clear_abandoned(lambda tenant, job_id: False)
    assert spooled() == ["a.txt"]  # it may be on its way
    monkeypatch.setattr(spool, "_ABANDONED_S", -1.0)
    clear_abandoned(lambda tenant, job_id: (tenant, job_id) == ("", "job_of_the_dead"))
    assert spooled() == ["a.txt"]
    clear_abandoned(lambda tenant, job_id: False)
    assert spooled() == []


@pytest.mark.slow
async def test_messy_files_each_end_in_a_status_with_a_reason(harbour: str) -> None:
    files = [
        (path.name, path.read_bytes())
        for path in sorted(shared_data("messy").iterdir())
        if path.name != "MANIFEST.json"
    ]
    assert sum(len(data) for _, data in files) < LARGEST_FILE
    async with asking() as http:
        job = await uploaded(http, "harbour", *files)
        assert job["status"] == "succeeded"
        sources = {source["id"]: source for source in job["result"]["sources"]}
        assert set(sources) == {name for name, _ in files}
        assert all(source["reason"] for source in sources.values() if source["status"] not in ("indexed", "unchanged"))
        assert job["result"]["counts"]["indexed"] > len(files) / 2
        assert str(home()) not in json.dumps(job)
        again = await uploaded(http, "harbour", *files)
        assert again["result"]["embedded"] == 0
    assert spooled() == []
