from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from face_support import wait_until
from keyed_support import PUBLIC, SEARCH, bearer, key_id, keyed, make_key, settle

from thresher.api.service.audit import KEPT, AuditLog, Entry

FIELDS = {
    "time",
    "request_id",
    "key_id",
    "tenant",
    "client",
    "method",
    "route",
    "objects",
    "status",
    "duration_ms",
}


def lines(path: Path) -> list[dict[str, Any]]:
    """What a log holds; every line of it is whole."""
    text = path.read_text(encoding="ascii")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def entry(number: int = 0, **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "time": 1_000_000.5,
        "request_id": f"req_{number:06}",
        "key_id": "k",
        "tenant": "",
        "client": "127.0.0.1",
        "method": "GET",
        "route": "/v1/search",
        "objects": {},
        "status": 200,
        "duration_ms": 1.25,
    }
    return Entry(**{**given, **fields})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    made = AuditLog(tmp_path / "audit.jsonl", max_bytes=1_000_000)
    yield made
    made.close()


async def test_each_request_is_one_line_without_what_was_asked(harbour_template: Path, thresher_home: Path) -> None:
    settle(harbour_template, "north/harbour")
    token = make_key(tenant="north")
    async with keyed(PUBLIC, client="203.0.113.9", host="0.0.0.0", api_key="s3cret") as http:
        answers = [
            await http.post(
                "/v1/search?secret=1", json={**SEARCH, "query": "a private question"}, headers=bearer(token)
            ),
            await http.post("/v1/search", json=SEARCH, headers={**bearer("s3cret"), "X-Request-ID": "mine"}),
            await http.get("/v1/nothing/private", headers=bearer(token)),
            await http.get("/v1/search", headers=bearer(token)),
            await http.post("/v1/search", json=SEARCH),
            await http.post("/v1/search", json=SEARCH, headers=bearer("wrong")),
            await http.post("/v1/search", content=b"{}" * 600_000, headers=bearer(token)),
            await http.get("/healthz"),  # open to all, and asked every few seconds
        ]
    assert [answer.status_code for answer in answers] == [200, 404, 404, 405, 401, 401, 413, 200]
    path = thresher_home / "audit.jsonl"
    logged = lines(path)
    assert {frozenset(line) for line in logged} == {frozenset(FIELDS)}
    assert [line["request_id"] for line in logged] == [answer.headers["x-request-id"] for answer in answers[:-1]]
    shown = [(line["key_id"], line["tenant"], line["method"], line["route"], line["status"]) for line in logged]
    mine = key_id(token)
    assert shown == [
        (mine, "north", "POST", "/v1/search", 200),
        ("api_key", "", "POST", "/v1/search", 404),
        (mine, "north", "GET", None, 404),
        (mine, "north", "GET", "/v1/search", 405),
        (None, None, "POST", None, 401),
        (None, None, "POST", None, 401),
        (mine, "north", "POST", None, 413),
    ]
    assert {line["client"] for line in logged} == {"203.0.113.9"}
    assert all(line["duration_ms"] >= 0 and line["time"].endswith("Z") for line in logged)
    assert "private" not in path.read_text()
    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("settings", "logged"),
    [
        ({}, [(True, 200)]),  # an open server: only who sent a key
        ({"audit": True}, [(False, 200), (True, 200)]),
        ({"audit": False}, []),
        ({"require_key": True}, [(False, 401), (True, 200)]),
        ({"require_key": True, "audit": False}, []),
    ],
)
async def test_what_is_logged_is_the_operators_choice(
    harbour: str, thresher_home: Path, settings: dict[str, Any], logged: list[tuple[bool, int]]
) -> None:
    token = make_key()
    async with keyed(**settings) as http:
        await http.post("/v1/search", json=SEARCH)
        await http.post("/v1/search", json=SEARCH, headers=bearer(token))
    path = thresher_home / "audit.jsonl"
    found = [(line["key_id"] == key_id(token), line["status"]) for line in lines(path)] if path.exists() else []
    assert found == logged


async def test_ids_of_objects_are_named(harbour: str, thresher_home: Path) -> None:
    async with keyed(audit=True) as http:
        app = http.app  # type: ignore[attr-defined]

        @app.get("/v1/collections/{name}/things/{thing:path}")
        async def thing(name: str, thing: str) -> dict[str, str]:
            return {}

        search = (await http.post("/v1/search", json=SEARCH)).json()["id"]
        job = (await http.post("/v1/collections/harbour/verify")).json()["id"]
        await http.get("/v1/collections/harbour/things/a/b%20c")
        await http.get("/v1/collections/harbour/things/" + "x" * 2_000)
    searched, begun, first, second = lines(thresher_home / "audit.jsonl")
    assert searched["objects"] == {"search_id": search}
    assert begun["objects"] == {"collection": "harbour", "made": f"/v1/jobs/{job}"}
    assert first["route"] == "/v1/collections/{name}/things/{thing:path}"
    assert first["objects"] == {"name": "harbour", "thing": "a/b c"}
    assert second["objects"]["thing"] == "x" * 256


async def test_a_client_that_has_gone_is_logged_as_such(harbour: str, thresher_home: Path) -> None:
    async with keyed(audit=True) as http:
        app = http.app  # type: ignore[attr-defined]
        begun = asyncio.Event()

        @app.get("/v1/slow")
        async def slow() -> dict[str, str]:
            begun.set()
            await asyncio.sleep(3_600)
            return {}

        asking = asyncio.create_task(http.get("/v1/slow"))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    [line] = lines(thresher_home / "audit.jsonl")
    assert (line["route"], line["status"]) == ("/v1/slow", 499)


async def test_a_log_that_cannot_be_written_fails_no_request(
    harbour: str, thresher_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = thresher_home / "audit.jsonl"
    path.mkdir(parents=True)  # in the way
    async with keyed(audit=True) as http:
        for _ in range(3):
            assert (await http.post("/v1/search", json=SEARCH)).status_code == 200
            await asyncio.to_thread(wait_until, lambda: "cannot be written" in caplog.text, "warned")
        path.rmdir()
        assert (await http.post("/v1/search", json=SEARCH)).status_code == 200
    assert caplog.text.count("requests are not in the audit log") == 1
    lost, *written = lines(path)
    assert set(lost) == {"time", "lost_entries"}
    assert lost["lost_entries"] >= 1
    assert lost["lost_entries"] + len(written) == 4
    assert written[-1]["status"] == 200


def test_a_full_disk_leaves_no_half_line(log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    real, room = os.write, 40

    def write(file: int, data: Any) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(file, data[:room])  # a disk takes what still fits
        room -= written
        return written

    log.write(entry(1))
    wait_until(lambda: path.exists() and lines(path), "written")
    with monkeypatch.context() as patch:
        patch.setattr("thresher.api.service.audit.os.write", write)
        log.write(entry(2))
        wait_until(lambda: log._state.lost == 1, "lost")
        assert [line["request_id"] for line in lines(path)] == ["req_000001"]
    log.write(entry(3))
    log.close()
    assert [line.get("request_id", line.get("lost_entries")) for line in lines(path)] == ["req_000001", 1, "req_000003"]


def test_full_files_are_put_aside_and_the_oldest_deleted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    size = len(entry().line())
    for number in range(40):  # one log after the other, so that each batch is one line
        log = AuditLog(path, max_bytes=3 * size)
        log.write(entry(number))
        log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", *(f"audit.jsonl.{n}" for n in range(1, KEPT + 1))]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    ids = [line["request_id"] for file in (*files[:0:-1], files[0]) for line in lines(file)]
    assert ids == [f"req_{number:06}" for number in range(24, 40)]  # 5 files of 3, and 1 in the newest


def test_a_burst_is_spread_over_files(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=4_096, kept=1_000)
    for number in range(500):
        log.write(entry(number))
    log.close()
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert max(sizes) < 2 * 4_096 + 1_000
    assert len([line for file in tmp_path.iterdir() for line in lines(file)]) == 500


def test_two_servers_share_a_log_whose_files_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    logs = [AuditLog(path, max_bytes=4_096, kept=1_000) for _ in range(4)]

    def fill(log: AuditLog, first: int) -> None:
        for number in range(first, first + 200):
            log.write(entry(number))
            time.sleep(0)

    threads = [threading.Thread(target=fill, args=(log, number * 200)) for number, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()
    ids = sorted(line["request_id"] for file in tmp_path.iterdir() for line in lines(file))
    assert ids == [f"req_{number:06}" for number in range(800)]


def test_writing_never_waits_for_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that hangs costs lines, and bounded memory."""
    os.mkfifo(tmp_path / "audit.jsonl")  # opening one waits until somebody reads it
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=4_096, waiting=10)
    log.write(entry(0))
    wait_until(lambda: not log._state.entries, "taken")
    for number in range(50):
        log.write(entry(number))
    assert (len(log._state.entries), log._state.lost) == (10, 40)
    (tmp_path / "audit.jsonl").rename(tmp_path / "pipe")
    with (tmp_path / "pipe").open("rb"):  # let it go on
        log.close()
    written = lines(tmp_path / "audit.jsonl")
    assert [line["lost_entries"] for line in written if "lost_entries" in line] == [40]


def test_any_id_makes_one_line(log: AuditLog, tmp_path: Path) -> None:
    odd = "a\nb\u2028\ud800\x00é"
    log.write(entry(objects={"document_id": odd}))
    log.close()
    [line] = lines(tmp_path / "audit.jsonl")
    assert line["objects"]["document_id"] == odd
