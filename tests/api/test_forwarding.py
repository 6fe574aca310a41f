"""A command beside a running server: it goes through the server, and what it does is there at once."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import (
    PATIENCE_S,
    THRESHER,
    Outcome,
    Served,
    documents_in,
    serving,
    started,
    thresher,
    wait_until,
)

from thresher.api.control import PROTOCOL
from thresher.api.control.rundir import find, run_directory
from thresher.corpus.collection import Collection
from thresher.corpus.paths import DATABASE, collection_path

SECRET = "xyzzyplugh"


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """A folder of three files, one of them with a name that is not ASCII, in a folder whose name is not either."""
    folder = tmp_path / "päpers 日本"
    folder.mkdir()
    (folder / "ferry.txt").write_text("The ferry Alma was built in 1931 by Corran & Sons.")
    (folder / "wärft.txt").write_text("The yard of Corran & Sons stood in Port Ellin.")
    (folder / "secret.txt").write_text(f"The password is {SECRET}.")
    return folder


def opened_by(server: Served, name: str) -> None:
    """Make the server own a collection, as the first query does."""
    server.search("anything", name)


def texts(results: list[dict[str, Any]]) -> str:
    return " ".join(result["text"] for result in results)


def door_of(server: Served) -> socket.socket:
    announcement = find(server.process.pid)
    assert announcement is not None
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(announcement.socket)
    return connection


def post(server: Served, body: dict[str, Any], path: str = "/operations") -> list[dict[str, Any]]:
    """Speak to the control directly; the lines of the answer but the signs of life."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = door_of(server)
    connection.request("POST", path, json.dumps(body))
    lines = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    connection.close()
    return [line for line in lines if "alive" not in line]


def call(name: str, operation: str, **request: Any) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "version": "0.1.0",
        "id": f"{operation}-{time.monotonic_ns()}",
        "operation": operation,
        "collection": name,
        "path": str(collection_path(name)),
        "request": request,
    }


def test_every_command_goes_through_the_server(harbour: str, papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        before = {
            command: Outcome(*command.split(), "--json").json
            for command in ("ls -c harbour", "status -c harbour", "ls")
        }
        opened_by(server, harbour)
        for command, expected in before.items():
            told = Outcome(*command.split(), "--json").json
            assert told.keys() == expected.keys()
            assert told.get("documents") == expected.get("documents")
        assert Outcome("ls", "--json").json["data"][0]["state"] == "ready"

        monkeypatch.chdir(papers.parent)  # a relative path means the command's folder, not the server's
        first = Outcome("ingest", papers.name, "-c", harbour, "--json")
        assert first.code == 0, first.err
        assert first.json["counts"] == {"indexed": 3}
        assert SECRET in texts(server.search(SECRET, harbour))
        assert Outcome("ingest", papers.name, "-c", harbour, "--json").json["counts"] == {"unchanged": 3}
        ids = {document["id"] for document in Outcome("ls", "-c", harbour, "--json").json["documents"]}
        assert "wärft.txt" in ids

        (papers / "secret.txt").unlink()
        synced = Outcome("sync", papers, "-c", harbour, "--json").json
        assert (synced["removed"], synced["counts"]) == (1, {"unchanged": 2})
        assert SECRET not in texts(server.search(SECRET, harbour))
        found = Outcome("search", SECRET, "-c", harbour, "--effort", "minimal", "--json")
        assert SECRET not in texts(found.json["results"])

        unknown = Outcome("rm", "wärft.txt", "no-such", "-c", harbour)
        assert unknown.code == 1
        assert "'no-such'" in unknown.err
        assert unknown.err.count("\n") == 1
        assert Outcome("rm", "wärft.txt", "-c", harbour, "--json").json["removed"] == 1
        assert not any(result["document_id"] == "wärft.txt" for result in server.search("yard", harbour))

        agentic = Outcome("search", "Who built the ferry Alma?", "-c", harbour, "-v")
        assert agentic.code in (0, 3, 4), agentic.err
        assert "turn 1" in agentic.out
        assert Outcome("trace", "show", "last").code == 0
        assert Outcome("search", "x", "-c", harbour, "--filter", "{}").code == 2

        assert "no problems" in Outcome("verify", harbour).out
        assert Outcome("rebuild", harbour, "--json").json["generations"]["lexical"] > 1
        assert Outcome("compact", harbour).code == 0
        assert Outcome("compact", harbour, "--erase").code == 0
        files = [path for path in collection_path(harbour).rglob("*") if path.is_file()]
        assert not any(SECRET.encode() in path.read_bytes() for path in files)
        assert server.search("yard", harbour)
        shown = server.stop()
        assert "Traceback" not in shown, shown
    assert Outcome("verify", harbour, "--json").json["ok"] is True
    assert list(run_directory().iterdir()) == [], "nothing of a server that has stopped is left"


@pytest.mark.slow
def test_a_collection_is_exchanged_under_a_running_server(harbour: str, tmp_path: Path) -> None:
    """Reindex, undo, restore: the server closes the collection, and the next query has what is there then."""
    with serving() as server:
        opened_by(server, harbour)
        assert Outcome("snapshot", tmp_path / "kept", "-c", harbour).code == 0
        changed = Outcome("reindex", harbour, "--chunker", "structure-1:100", "--json")
        assert changed.code == 0, changed.err
        assert changed.json["chunker"] == "structure-1:100"
        assert "ferry.md" in {result["document_id"] for result in server.search("ferry", harbour)}
        assert Outcome("rm", "ferry.md", "-c", harbour).code == 0
        assert Outcome("reindex", harbour, "--undo").code == 0
        assert "ferry.md" not in {result["document_id"] for result in server.search("ferry", harbour)}
        assert Outcome("restore", tmp_path / "kept", "-c", harbour, "--replace").code == 0
        assert "ferry.md" in {result["document_id"] for result in server.search("ferry", harbour)}
        assert Outcome("export", tmp_path / "kept.jsonl", "-c", harbour, "--json").json["documents"] == 3
        assert Outcome("rm", "ferry.md", "-c", harbour).code == 0
        assert Outcome("import", tmp_path / "kept.jsonl", "-c", harbour, "--json").json["unchanged"] == 2
        assert "ferry.md" in {result["document_id"] for result in server.search("ferry", harbour)}
        shown = server.stop()
        assert "Traceback" not in shown, shown
    assert Outcome("rebuild", harbour).code == 0
    assert Outcome("verify", harbour, "--json").json["ok"] is True


@pytest.mark.slow
def test_what_was_deleted_is_gone_through_every_door(papers: Path) -> None:
    assert Outcome("ingest", papers, "--embedder", "wordllama").code == 0
    with serving() as server:
        assert SECRET in texts(server.search(SECRET))
        (papers / "secret.txt").unlink()
        synced = thresher("sync", papers)  # a process of its own, once
        assert synced.returncode == 0, synced.stderr
        assert "1 removed" in synced.stdout
        assert SECRET not in texts(server.search(SECRET))
        assert SECRET not in texts(Outcome("search", SECRET, "--effort", "minimal", "--json").json["results"])
        server.stop()
    assert SECRET not in texts(Outcome("search", SECRET, "--effort", "minimal", "--json").json["results"])
    with serving() as server:
        assert SECRET not in texts(server.search(SECRET))


def test_the_door_is_for_this_user_and_not_on_the_network(harbour: str) -> None:
    with serving() as server:
        announcement = find(server.process.pid)
        assert announcement is not None
        assert stat.S_IMODE(os.stat(announcement.socket).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(announcement.socket)).st_mode) == 0o700
        for path in ("/operations", "/operations/x/cancel"):
            refused = httpx.post(server.url + path, json=call(harbour, "status"))
            assert refused.status_code == 404
        assert post(server, call(harbour, "status"))[0]["result"]["documents"] == 3


def test_a_call_that_cannot_be_served_says_why(harbour: str, tmp_path: Path) -> None:
    with serving() as server:
        for change, code, word in (
            ({"version": "9.9"}, "version_mismatch", "restart the server"),
            ({"protocol": PROTOCOL + 1}, "version_mismatch", "restart the server"),
            ({"path": str(tmp_path / "other")}, "other_home", "THRESHER_HOME"),
            ({"operation": "format"}, "invalid_request", "no operation 'format'"),
            ({"request": {"bogus": 1}}, "invalid_request", "bogus"),
            ({"collection": "nowhere", "path": str(collection_path("nowhere"))}, "collection_not_found", "nowhere"),
            ({"collection": "A B"}, "invalid_request", "cannot name a collection"),
        ):
            [line] = post(server, {**call(harbour, "status"), **change})
            assert line["error"]["code"] == code
            assert word in line["error"]["message"]
        assert post(server, call(harbour, "status"), "/nowhere")[0]["error"]["code"] == "route_not_found"


def test_a_collection_made_through_the_door_is_served_at_once(papers: Path) -> None:
    with serving() as server:
        request = {"origins": [str(papers)], "embedder": "wordllama"}
        end = post(server, call("fresh", "ingest", **request))[-1]
        assert end["result"]["counts"] == {"indexed": 3}
        assert SECRET in texts(server.search(SECRET, "fresh"))
        other = {**request, "embedder": "minilm"}
        assert post(server, call("fresh", "ingest", **other))[-1]["error"]["code"] == "collection_mismatch"


def test_a_collection_that_another_command_has_is_refused(harbour: str) -> None:
    with serving() as server:  # a server runs, but it does not have this collection
        holder = "import sys,time; from thresher.corpus.collection import Collection; "
        holder += f"c = Collection.open(__import__('pathlib').Path({str(collection_path(harbour))!r})); "
        holder += "print('ready', flush=True); time.sleep(600)"
        other = subprocess.Popen([THRESHER[0], "-c", holder], stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            refused = Outcome("status", "-c", harbour)
            assert refused.code == 1
            assert f"in use by process {other.pid}" in refused.err
            assert f"in use by process {other.pid}" in Outcome("ls").out
            assert server.process.poll() is None
        finally:
            other.kill()
            other.communicate()


@pytest.mark.slow
def test_leftovers_of_a_killed_server_are_in_nobodys_way(harbour: str, tmp_path: Path) -> None:
    with serving() as server:
        opened_by(server, harbour)
        announcement = find(server.process.pid)
        assert announcement is not None
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(PATIENCE_S)
    assert os.path.exists(announcement.socket)
    before = {path.stem for path in run_directory().glob("*.owner")}
    assert before
    assert Outcome("status", "-c", harbour).code == 0  # the lock died with its owner
    # The pid may be another process's by now, one that has the collection and is no server.
    stale = run_directory() / f"{os.getpid()}.json"
    shutil.copy(run_directory() / f"{announcement.pid}.json", stale)
    stale.write_text(stale.read_text().replace(str(announcement.pid), str(os.getpid()), 1))
    with Collection.open(collection_path(harbour)):
        refused = thresher("status", "-c", harbour)
    assert refused.returncode == 1
    assert f"process {os.getpid()}" in refused.stderr
    with serving() as server:
        assert not os.path.exists(announcement.socket)
        left = [path.name.partition(".") for path in run_directory().iterdir()]
        assert {pid for pid, _, kind in left if kind != "owner"} == {str(server.process.pid)}
        assert not before & {name for name, _, kind in left if kind == "owner"}


@pytest.mark.slow
def test_a_name_that_is_no_unicode_goes_through(harbour: str, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes only valid Unicode")
    (folder / os.fsdecode(b"th\xe9.txt")).write_text("A note on tea.")
    with serving() as server:
        opened_by(server, harbour)
        done = Outcome("ingest", folder, "-c", harbour, "--json")
        assert done.code == 0, done.err
        assert done.json["counts"] == {"indexed": 1}
        assert "A note on tea." in texts(server.search("tea", harbour))


@pytest.mark.slow
def test_two_servers_each_have_their_own(harbour: str) -> None:
    shutil.copytree(collection_path(harbour), collection_path("second"))
    with serving("-c", harbour) as one, serving("-c", "second") as two:
        opened_by(one, harbour)
        opened_by(two, "second")
        rows = {row["name"]: row for row in Outcome("ls", "--json").json["data"]}
        assert {name: row["documents"] for name, row in rows.items()} == {"harbour": 3, "second": 3}
        assert Outcome("rm", "ferry.md", "-c", "second").code == 0
        assert "ferry.md" not in {result["document_id"] for result in two.search("ferry", "second")}
        assert "ferry.md" in {result["document_id"] for result in one.search("ferry", harbour)}


@pytest.mark.slow
def test_a_server_of_another_home_is_not_asked(
    harbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thresher_home: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(thresher_home, elsewhere)
    with serving(env={"THRESHER_HOME": str(elsewhere)}) as server:
        opened_by(server, harbour)
        assert Outcome("rm", "ferry.md", "-c", harbour).code == 0
        assert "ferry.md" in {result["document_id"] for result in server.search("ferry", harbour)}
        monkeypatch.setenv("THRESHER_HOME", str(elsewhere))
        assert Outcome("rm", "ferry.md", "-c", harbour).code == 0
        assert "ferry.md" not in {result["document_id"] for result in server.search("ferry", harbour)}


@pytest.mark.slow
def test_a_home_with_a_long_name_gets_its_socket_elsewhere(
    harbour_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ("länge-" * 20)
    monkeypatch.setenv("THRESHER_HOME", str(home))
    shutil.copytree(harbour_template, collection_path("harbour"))
    with serving() as server:
        opened_by(server, "harbour")
        announcement = find(server.process.pid)
        assert announcement is not None
        assert not announcement.socket.startswith(str(home))
        assert stat.S_IMODE(os.stat(os.path.dirname(announcement.socket)).st_mode) == 0o700
        assert Outcome("status", "-c", "harbour", "--json").json["documents"] == 3
        server.stop()
    assert not os.path.exists(os.path.dirname(announcement.socket))


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder that takes a while to read."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(600):
        text = f"Paper {number} deals with tide table {number}.\n\n" * 60
        (folder / f"{number:04}.txt").write_text(text)
    return folder


@contextmanager
def ingesting(folder: Path, name: str, server: Served) -> Iterator[subprocess.Popen[str]]:
    """A command that a server is reading a folder for, some documents along."""
    database = collection_path(name) / DATABASE
    before = documents_in(database)
    with started("ingest", folder, "-c", name, "--json") as command:
        wait_until(lambda: command.poll() is not None or documents_in(database) > before, "wrote a document")
        assert command.poll() is None, command.communicate()
        assert server.process.poll() is None
        yield command


@pytest.mark.slow
def test_ctrl_c_stops_what_the_server_does_and_keeps_what_is_done(harbour: str, many: Path) -> None:
    with serving() as server:
        opened_by(server, harbour)
        with ingesting(many, harbour, server) as command:
            busy = Outcome("ingest", many, "-c", harbour)
            assert busy.code == 1
            assert "is running `ingest`" in busy.err
            assert server.search("ferry", harbour), "searches go on"
            command.send_signal(signal.SIGINT)
            stdout, stderr = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 130, stderr
        assert "interrupted" in stderr
        assert json.loads(stdout)["error"]["code"] == "interrupted"
        kept = documents_in(collection_path(harbour) / DATABASE) - 3
        assert 0 < kept < 600
        again = Outcome("ingest", many, "-c", harbour, "--json")
        assert again.code == 0, again.err
        assert again.json["counts"]["unchanged"] > 0
        assert sum(again.json["counts"].values()) == 600
        assert "0599.txt" in {result["document_id"] for result in server.search("paper 599 tide table 599", harbour)}
        shown = server.stop()
        assert "Traceback" not in shown, shown


@pytest.mark.slow
def test_a_command_that_is_killed_stops_its_work(harbour: str, many: Path) -> None:
    with serving() as server:
        opened_by(server, harbour)
        with ingesting(many, harbour, server) as command:
            command.kill()
            command.communicate()
        wait_until(lambda: Outcome("ingest", many / "0000.txt", "-c", harbour).code == 0, "free again")
        assert documents_in(collection_path(harbour) / DATABASE) < 603


@pytest.mark.slow
def test_a_server_that_is_stopped_tells_the_command(harbour: str, many: Path) -> None:
    with serving() as server:
        opened_by(server, harbour)
        with ingesting(many, harbour, server) as command:
            shown = server.stop()
            _, stderr = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 1
        assert "server was stopped" in stderr
        assert "Traceback" not in shown + stderr
    assert Outcome("verify", harbour, "--json").json["ok"] is True


@pytest.mark.slow
def test_a_server_that_is_killed_loses_nothing_it_had_acknowledged(harbour: str, many: Path) -> None:
    with serving() as server:
        opened_by(server, harbour)
        with ingesting(many, harbour, server) as command:
            server.process.kill()
            _, stderr = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 1
        assert f"the server (process {server.process.pid}) ended before it answered" in stderr
        assert stderr.count("\n") == 1
    kept = documents_in(collection_path(harbour) / DATABASE)
    assert kept > 3
    with serving() as server:  # the next one takes over, stale socket and all
        opened_by(server, harbour)
        again = Outcome("ingest", many, "-c", harbour, "--json")
        assert again.code == 0, again.err
        assert again.json["counts"]["unchanged"] > 0
        assert sum(again.json["counts"].values()) == 600
        assert Outcome("verify", harbour, "--json").json["ok"] is True
        assert {result["document_id"] for result in server.search("ferry Alma", harbour)} & {"ferry.md"}


@pytest.mark.slow
def test_a_terminated_server_leaves_nothing(harbour: str) -> None:
    with serving() as server:
        opened_by(server, harbour)
        server.process.terminate()
        _, stderr = server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 0
        assert "Traceback" not in stderr
    assert list(run_directory().iterdir()) == []
    assert Outcome("verify", harbour, "--json").json["ok"] is True


@pytest.mark.slow
def test_searches_go_on_around_whatever_commands_do(harbour: str, papers: Path, tmp_path: Path) -> None:
    """Queries without a pause, while commands write, compact and exchange the collection under them."""
    over = threading.Event()
    answers: Counter[int] = Counter()
    wrong: list[str] = []

    def query(server: Served) -> None:
        body = {"query": "the yard of Corran", "effort": "minimal", "collections": [harbour]}
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            while not over.is_set():
                response = http.post("/v1/search", json=body)
                answers[response.status_code] += 1
                if response.status_code == 503:
                    assert response.headers["retry-after"]
                elif response.status_code != 200 or "Corran" not in response.text:
                    wrong.append(response.text)

    with serving() as server:
        opened_by(server, harbour)
        threads = [threading.Thread(target=query, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for command in (
                ["snapshot", tmp_path / "kept"],
                ["ingest", papers],
                ["rebuild"],
                ["reindex", "--chunker", "structure-1:100"],
                ["sync", papers],
                ["reindex", "--undo"],
                ["compact", "--erase"],
                ["restore", tmp_path / "kept", "--replace"],
                ["rebuild"],  # else `verify` may find the index that is built anew in the background
                ["verify"],
            ):
                done = Outcome(*command, "-c", harbour)
                assert done.code == 0, (command, done.err, done.out)
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        shown = server.stop()
        assert "Traceback" not in shown, shown
    assert not wrong, wrong[0]
    assert answers[200] > 20
    assert set(answers) <= {200, 503}
