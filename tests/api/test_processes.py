"""Faces as processes: signals, a real server, and two processes on one directory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from face_support import PATIENCE_S, THRESHER, documents_in, serving, started, thresher, wait_until

from thresher.api.cli.search import exit_code, run_search
from thresher.api.policies import PolicyChoice
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionLocked
from thresher.corpus.paths import DATABASE, collection_path
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest, StopReason


def test_the_command_answers() -> None:
    assert thresher("--version").stdout.startswith("thresher 0.")
    assert thresher().returncode == 2
    done = thresher("ls", "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"object": "list", "data": []}, "")


def test_a_reader_that_closes_the_pipe_is_no_error(harbour: str) -> None:
    command = " ".join(f"'{part}'" for part in [*THRESHER, "ls", "-c", harbour, "--json"])
    done = subprocess.run(["bash", "-c", f"{command} | head -c 1"], capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("ls", "--json"),
        ("--help",),
        ("ls", "--help"),
        pytest.param(("doctor", "--json"), marks=pytest.mark.slow),
    ],
)
def test_output_that_cannot_be_written_is_told(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*THRESHER, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 1
        assert (
            done.stderr == "error: cannot use standard output: No space left on device; free some space and try again\n"
        )
        silent = subprocess.run([*THRESHER, *arguments], stdout=full, stderr=full, timeout=PATIENCE_S, check=False)
        assert silent.returncode == 1


def test_a_server_owns_its_collections_until_it_stops(harbour: str) -> None:
    with serving("-c", harbour) as server:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            assert http.get("/healthz").json() == {"status": "ok"}
            answer = http.post("/v1/search", json={"query": "yard", "effort": "minimal"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["results"]
            assert http.post("/v1/search", content=b"{").json()["error"]["request_id"]

            with pytest.raises(CollectionLocked) as refused:
                Collection.open(collection_path(harbour))
            assert refused.value.pid == server.process.pid

            occupied = thresher("serve", "--port", server.url.rsplit(":", 1)[1])
            assert occupied.returncode == 2
            assert "choose another --port" in occupied.stderr
        assert "Traceback" not in server.stop()
    assert thresher("search", "yard", "-c", harbour, "--effort", "minimal").returncode == 0


def test_an_interrupted_ingestion_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    files = 300
    for number in range(files):
        (folder / f"{number:04}.txt").write_text(f"Paper {number} deals with tide table {number}.\n\n" * 60)
    database = collection_path("many") / DATABASE
    with started("ingest", folder, "-c", "many", "--embedder", "wordllama") as process:
        wait_until(lambda: process.poll() is not None or documents_in(database) > 0, "wrote a document")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert "run the same command again" in stderr
    assert "Traceback" not in stderr
    kept = documents_in(database)
    assert 0 < kept < files

    again = thresher("ingest", folder, "-c", "many", "--json")
    assert again.returncode == 0, again.stderr
    counts = json.loads(again.stdout)["counts"]
    assert counts.get("unchanged", 0) > 0
    assert sum(counts.values()) == files
    assert json.loads(thresher("status", "-c", "many", "--json").stdout)["documents"] == files


def test_ctrl_c_ends_a_search_with_what_it_has(
    harbour: str, thresher_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        name = "interrupted"

        async def decide(self, view: View) -> Decision:
            if view.turn == 1:
                return Decision((ToolUse("search_corpus", {"query": "yard"}),))
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(3_600)
            raise AssertionError("unreachable")

    monkeypatch.setattr(PolicyChoice, "make", lambda choice, key: lambda collection: Interrupted())
    before = signal.getsignal(signal.SIGINT)
    with Collection.open(collection_path(harbour)) as collection:
        request = SearchRequest("Where was the yard?")
        result = run_search(collection, PolicyChoice(), request, key=None, save=True)
    assert result.stop_reason is StopReason.CANCELLED
    assert result.results
    assert exit_code(result) == 130
    assert (thresher_home / "traces" / f"{result.id}.jsonl").is_file()
    assert signal.getsignal(signal.SIGINT) == before
