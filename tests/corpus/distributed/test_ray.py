"""Ingestion through a real Ray cluster on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from input_files import make_pdf, record, write

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.embedders import load_embedder
from thresher.corpus.errors import ClusterError, EmbedderError
from thresher.corpus.ingestion.distributed import parsing, tasks
from thresher.corpus.ingestion.distributed.parsing import line_blocks
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync

pytest.importorskip("ray")
# In one worker: `auto` would find the cluster of another.
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two CPUs in this process."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"  # it would leave a token in the user's home
    import ray

    folder = tempfile.mkdtemp(prefix="r")  # sockets lie there, and their paths must be short
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        _temp_dir=folder,
    )
    try:
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    write(root / "wine.md", "# Wine\n\nThe Loire valley grows Chenin blanc. " + "Frost is feared in April. " * 200)
    write(root / "sub" / "cheese.html", "<title>Cheese</title><p>Comté ripens for eighteen months.</p>")
    write(root / "report.pdf", make_pdf(["Harvest report.", "Frost damaged a third of the vines."]))
    write(root / "broken.pdf", b"%PDF-1.4 broken")
    write(root / "empty.txt", b"")
    write(root / "image.bin", b"\x89PNG")
    lines = [json.dumps({"id": f"p{n}", "text": record(n)}) for n in range(700)]
    lines[3], lines[40] = "{broken", json.dumps({"text": "without an id " + record(40)})
    write(root / "people.jsonl", "\ufeff" + "\n".join(lines))
    return root


def create(path: Path, spec: str = "wordllama") -> Collection:
    return Collection.create(path, load_embedder(spec))


def outcome(report: IngestReport) -> dict[str, tuple[Status, str | None, int, int]]:
    return {r.id: (r.status, r.reason, r.documents, r.chunks) for r in report.sources}


def content(collection: Collection) -> dict[str, Any]:
    found = {}
    for info in collection.documents():
        chunks = collection.read(info.id)
        vectors = collection.vectors([chunk.id for chunk in chunks])
        spans = [(chunk.start, chunk.end) for chunk in chunks]
        found[info.id] = (info.uri, info.title, info.content_hash, info.source_id, spans, vectors.tobytes())
    return found


def test_a_cluster_that_is_not_there(docs: Path, tmp_path: Path) -> None:
    import ray

    if ray.is_initialized():
        pytest.skip("this process is in a cluster already")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with create(tmp_path / "c") as collection:
        for address, message in (
            (f"127.0.0.1:{port}", "nothing answers"),
            (f"ray://127.0.0.1:{port}", "nothing answers"),
            ("somewhere", "no address"),
        ):
            started = time.monotonic()
            with pytest.raises(ClusterError, match=message):
                ingest(collection, [docs], ray=address)
            assert time.monotonic() - started < 60
        assert collection.sources() == []


def test_blocks_hold_whole_lines(tmp_path: Path) -> None:
    lines = [f"line {n} ".encode() * (n % 7) + b"\n" for n in range(500)]
    path = write(tmp_path / "x", b"".join(lines)[:-1])
    blocks = list(line_blocks(path, 300))
    assert b"".join(data for _, data in blocks) == path.read_bytes()
    assert len(blocks) > 10
    for number, data in blocks:
        assert data.split(b"\n")[0] == lines[number - 1].rstrip(b"\n")


@pytest.mark.slow
def test_the_result_is_that_of_the_local_path(
    cluster: Any, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_blocks, "__defaults__", (8_000,))
    with create(tmp_path / "local") as here, create(tmp_path / "ray") as there:
        local = ingest(here, [docs])
        seen: list[Progress] = []
        remote = ingest(there, [docs], ray="auto", on_progress=seen.append)
        assert outcome(remote) == outcome(local)
        assert (remote.embedded, remote.reused) == (local.embedded, local.reused)
        assert content(there) == content(here), "ids, spans, hashes, and vectors to the byte"
        assert (seen[-1].share, seen[-1].files_done) == (1.0, len(local.sources))
        again = ingest(there, [docs], ray="auto")
        assert (again.embedded, again.reused, again.removed) == (0, 0, 0)
        assert {r.status for r in again.sources} == {Status.UNCHANGED, Status.FAILED, Status.NO_TEXT, Status.SKIPPED}
        (docs / "wine.md").unlink()
        assert sync(there, docs, ray="auto").removed == 1
        assert there.verify().problems == ()


@pytest.mark.slow
def test_minilm_gives_the_same_vectors_on_workers(cluster: Any, tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"p{n}", "text": record(n)}) for n in range(60)]
    path = write(tmp_path / "r.jsonl", "\n".join(lines))
    with create(tmp_path / "local", "minilm") as here, create(tmp_path / "ray", "minilm") as there:
        ingest(here, [path])
        ingest(there, [path], ray="auto")
        chunks = {info.id: here.read(info.id)[0].id for info in here.documents()}
        others = [there.read(name)[0].id for name in chunks]
        difference = np.abs(here.vectors(list(chunks.values())) - there.vectors(others)).max()
        print("largest difference", difference)
        assert difference < 1e-6


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(cluster: Any, tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"p{n}", "text": record(n)}) for n in range(3_000)]
    path = write(tmp_path / "r.jsonl", "\n".join(lines))

    def stop(progress: Progress) -> None:
        if progress.chunks >= 500:
            raise KeyboardInterrupt

    with create(tmp_path / "c") as collection:
        with pytest.raises(KeyboardInterrupt):
            ingest(collection, [path], ray="auto", on_progress=stop)
        kept = collection.stats().documents
        assert 500 <= kept < 3_000
        report = ingest(collection, [path], ray="auto")
        assert (report.embedded, report.sources[0].status) == (3_000 - kept, Status.INDEXED)
        assert collection.stats().documents == 3_000


@pytest.mark.slow
@pytest.mark.parametrize(("times", "status"), [(2, Status.INDEXED), (99, Status.FAILED)])
def test_a_worker_that_dies_is_replaced_and_a_deadly_file_fails(
    cluster: Any, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, status: Status
) -> None:
    (tmp_path / "marks").mkdir()

    class Patched:
        Order, Answer = tasks.Order, tasks.Answer
        read_order = staticmethod(_deadly("wine.md", str(tmp_path / "marks"), times))

    monkeypatch.setattr(parsing, "tasks", Patched)
    with create(tmp_path / "c") as collection:
        report = ingest(collection, [docs], ray="auto")
        results = {r.id: r for r in report.sources}
        assert results["wine.md"].status is status
        assert results["sub/cheese.html"].status is results["report.pdf"].status is Status.INDEXED
        assert len(list((tmp_path / "marks").iterdir())) == min(times, parsing.ATTEMPTS)
        if status is Status.FAILED:
            assert "3 workers of the cluster" in (results["wine.md"].reason or "")


def _deadly(name: str, marks: str, times: int) -> Any:
    """Pickled by value: workers cannot import a test module."""
    source = f"""
def read_order(order):
    import os, pathlib, signal, time
    from thresher.corpus.ingestion.distributed import tasks
    marks = pathlib.Path({marks!r})
    if order.content.name == {name!r} and len(list(marks.iterdir())) < {times}:
        (marks / str(time.monotonic_ns())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return tasks.read_order(order)
"""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(source, namespace)
    return namespace["read_order"]


@pytest.mark.slow
def test_an_embedding_worker_that_dies_is_replaced(cluster: Any, tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"p{n}", "text": record(n)}) for n in range(1_500)]
    path = write(tmp_path / "r.jsonl", "\n".join(lines))
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.chunks >= 300 and not killed:
            killed.extend(_workers_named("ray::EmbedWorker"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with create(tmp_path / "c") as collection:
        report = ingest(collection, [path], ray="auto", on_progress=kill)
        assert killed
        assert outcome(report)["r.jsonl"][0] is Status.INDEXED
        assert collection.stats().documents == 1_500
        assert collection.verify().problems == ()


def _workers_named(title: str) -> list[int]:
    """Processes below this one whose title begins so."""
    parents, titles = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                titles[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])

    def below(pid: int) -> bool:
        while pid in parents and pid != 1:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return [pid for pid, shown in titles.items() if shown.startswith(title) and below(pid)]


@pytest.mark.slow
def test_an_embedder_that_workers_cannot_load(cluster: Any, docs: Path, tmp_path: Path) -> None:
    from support import HashEmbedder

    with (
        Collection.create(tmp_path / "c", HashEmbedder()) as collection,
        pytest.raises(ClusterError, match="test-hash"),
    ):
        ingest(collection, [docs], ray="auto")


@pytest.mark.slow
def test_an_embedder_that_fails_on_workers(
    cluster: Any, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thresher.corpus.ingestion.distributed.workers import RayWorkers

    def fail(self: RayWorkers, texts: Any) -> Any:
        raise EmbedderError("the embedder is down")

    with create(tmp_path / "c") as collection:
        with monkeypatch.context() as patched:
            patched.setattr(RayWorkers, "embed", fail)
            with pytest.raises(EmbedderError):
                ingest(collection, [docs], ray="auto")
        source = collection.source("people.jsonl")
        assert source is not None
        assert source.status is Status.FAILED
        assert outcome(ingest(collection, [docs], ray="auto"))["wine.md"][0] is Status.INDEXED


CLIENT = """
import sys
from pathlib import Path
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
with Collection.create(Path(sys.argv[1]), load_embedder("wordllama")) as collection:
    report = ingest(collection, [Path(sys.argv[2])], ray=sys.argv[3])
    print(report.embedded, sorted(str(r.status) for r in report.sources))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("address", "token"), [("auto", False), ("local", True), ("explicit", True)])
def test_a_cluster_of_other_processes(docs: Path, tmp_path: Path, address: str, token: bool) -> None:
    """`ray start`, then an ingestion in a process that knows nothing of it but the address."""
    ray = str(Path(sys.executable).with_name("ray"))
    short = tempfile.mkdtemp(prefix="r")  # sockets lie there, and their paths must be short
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": short, "HOME": short}
    environment = {name: value for name, value in environment.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_MODE")}
    if token:
        subprocess.run([ray, "get-auth-token", "--generate"], env=environment, check=True, capture_output=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    if address != "local":
        command = [ray, "start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    try:
        where = f"127.0.0.1:{port}" if address == "explicit" else address
        if address == "auto":
            environment["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        run = subprocess.run(
            [sys.executable, "-c", CLIENT, str(tmp_path / "c"), str(docs), where],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr[-3000:]
        assert "indexed" in run.stdout
    finally:
        if address != "local":
            _stop_cluster(port)
        shutil.rmtree(short, ignore_errors=True)


def _stop_cluster(port: int) -> None:
    """End what `ray start` with this port left running, and nothing else (`ray stop` would end every cluster)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if "ray" in command and (f":{port}\0" in command or f"gcs_server_port={port}" in command):
                os.kill(int(entry.name), signal.SIGKILL)
