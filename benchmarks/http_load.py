"""What the HTTP server costs, beside bare uvicorn that sends the same bytes; and whether it leaks.

    python benchmarks/http_load.py [--clients 1 10 50 100 200] [--seconds 5] [--json FILE]
    python benchmarks/http_load.py --leak 10000

Every server is a process of its own, and so is the client: plain asyncio with a parser for just these responses,
keep-alive, a new request as soon as the last one is answered. All of it is on loopback, with one uvicorn configuration.

- **bare**: an ASGI application that reads the body and sends the bytes that Thresher answered to the same request.
- **minimal**: `POST /v1/search` at effort minimal, one hybrid search of the packaged sample, without a model.
- **engine**: the same searches without HTTP, in one process, as many at once: what is left over is the server's.
- **model**: `POST /v1/search` at effort low with a stub model that answers at once, `--turns` turns a search.

The figures of one run belong together: other load on the machine changes all of them, but not their ratios so much,
and the processor time of the server for one request (CPU ms) least.
`client_cpu` is the share of a core that the client used; near 1 it would be the client that is measured.

`--leak N`: N requests of all kinds after a warm-up of a tenth: searches, streams, background searches, errors of four
sorts, clients that hang up at three moments. It fails where the server keeps more than `--bound` MB, or descriptors,
threads or tasks, than it had after the warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from load import served as stub_model

from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.paths import collection_path
from thresher.engine.requests import Effort, SearchRequest
from thresher.engine.search import SearchEngine

TOPICS = ("master", "cargo", "loss", "owner")
QUERIES = [f"{topic} of the {thing}" for topic in TOPICS for thing in ("ferry", "harbour")]
COLLECTION = "load"
EXTRA_FDS, EXTRA_THREADS, EXTRA_TASKS = 4, 2, 2
"""What may be open more after than before: a connection that is being closed, a thread of a pool that was not full."""


# --- the client


class Connection(asyncio.Protocol):
    """One keep-alive connection. Understands responses with a Content-Length, and chunked ones."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting is None or self._waiting.done():
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        if b"transfer-encoding: chunked" in head:
            if not self._received.endswith(b"0\r\n\r\n"):
                return
            body = bytes(self._received[end + 4 :])
        else:
            start = head.index(b"content-length:") + 15
            length = int(head[start : head.find(b"\r", start) if b"\r" in head[start:] else len(head)])
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
        self._received.clear()
        self._waiting.set_result((int(head[9:12]), body))

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the status and the body (of a stream: as it came)."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._waiting


def message(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def search(query: str, **fields: Any) -> bytes:
    """A search as bytes."""
    return message("POST", "/v1/search", json.dumps({"query": query, "collections": [COLLECTION], **fields}).encode())


async def connect(url: str) -> Connection:
    """A connection to a server."""
    parts = urlsplit(url)
    _, connection = await asyncio.get_running_loop().create_connection(Connection, parts.hostname, parts.port)
    return connection


async def drive(url: str, requests: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """`clients` connections that ask for `seconds`, after a fifth of it to warm up; what is answered by then counts."""
    loop = asyncio.get_running_loop()
    taken: list[float] = []
    sent = 0
    failed: dict[int, int] = {}
    warm = loop.time() + seconds / 5
    end = warm + seconds

    async def one(number: int) -> None:
        nonlocal sent
        connection = await connect(url)
        while (began := loop.time()) < end:
            status, _ = await connection.ask(requests[number % len(requests)])
            number, sent = number + 1, sent + 1
            now = loop.time()
            if warm <= now <= end:
                taken.append(now - began)
                if status != 200:
                    failed[status] = failed.get(status, 0) + 1
        connection.transport.close()

    async def idle() -> float:
        await asyncio.sleep(warm - loop.time())
        return time.process_time()

    before, *_ = await asyncio.gather(idle(), *(one(number) for number in range(clients)))
    cpu = time.process_time() - before
    taken.sort()

    def at(share: float) -> float:
        return round(taken[min(len(taken) - 1, int(share * len(taken)))] * 1e3, 2) if taken else float("nan")

    return {
        "clients": clients,
        "requests": len(taken),
        "sent": sent,
        "failed": failed,
        "per_s": round(len(taken) / seconds, 1),
        "p50_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "client_cpu": round(cpu / seconds, 2),
    }


def measure(server: tuple[str, int], requests: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """`drive` in a process of its own, on the server of that URL and process id; and what it cost the server."""
    url, pid = server
    before = cpu_of(pid)
    asked = {"url": url, "requests": [request.decode() for request in requests]}
    command = [sys.executable, __file__, "--client", "--clients", str(clients), "--seconds", str(seconds)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    result: dict[str, Any] = json.loads(done.stdout)
    result["cpu_ms"] = round((cpu_of(pid) - before) / max(1, result["sent"]) * 1e3, 2)
    return result


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the servers


@contextmanager
def thresher_server(home: Path, **settings: str) -> Iterator[tuple[str, int]]:
    """`thresher serve` on a free port; its URL and process id."""
    variables = {f"THRESHER_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, "THRESHER_HOME": str(home), "THRESHER_MAX_SEARCHES": "500", **variables}
    command = [sys.executable, "-c", "from thresher.api.cli import main; main()", "serve", "-c", COLLECTION]
    command += ["--port", "0", "--json"]
    with (
        (home / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as child,
    ):
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line == "}\n":
                break
        try:
            if not lines:
                raise RuntimeError(f"the server did not start: {(home / 'server.log').read_text()[-2_000:]}")
            yield json.loads("".join(lines))["url"], child.pid
        finally:
            child.terminate()
            if child.wait(60) != 0:
                print(f"the server ended with {child.returncode}: {(home / 'server.log').read_text()[-2_000:]}")


@contextmanager
def bare_server(response: bytes, folder: Path) -> Iterator[tuple[str, int]]:
    """Uvicorn that answers every request with `response`; its URL and process id."""
    (folder / "response").write_bytes(response)
    command = [sys.executable, __file__, "--bare", str(folder / "response")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}", child.pid
        finally:
            child.stdin.close()
            child.terminate()


def serve_bare(response: bytes) -> None:
    """Be that server."""
    import socket

    import uvicorn

    length = str(len(response)).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": response})

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2_048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", access_log=False, server_header=False, backlog=2_048
    )
    uvicorn.Server(config).run(sockets=[listener])


async def drive_engine(path: Path, clients: int, seconds: float) -> dict[str, Any]:
    """The searches without a server, `clients` at once."""
    with Collection.open(path) as collection:
        engine = SearchEngine(collection)
        done = 0

        async def one(number: int) -> None:
            nonlocal done
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                await engine.search(SearchRequest(QUERIES[number % len(QUERIES)], effort=Effort.MINIMAL))
                number += 1
                done += 1

        await engine.search(SearchRequest(QUERIES[0], effort=Effort.MINIMAL))
        done, started, cpu = 0, time.perf_counter(), time.process_time()
        await asyncio.gather(*(one(number) for number in range(clients)))
        taken, cpu = time.perf_counter() - started, time.process_time() - cpu
        return {"clients": clients, "per_s": round(done / taken, 1), "cpu_ms": round(cpu / max(1, done) * 1e3, 2)}


# --- what is measured


def build(home: Path) -> None:
    """The packaged sample as a collection."""
    os.environ["THRESHER_HOME"] = str(home)
    sample = Path(str(files("thresher.corpus"))) / "sample" / "docs"
    with Collection.create(collection_path(COLLECTION), load_embedder("wordllama"), name=COLLECTION) as collection:
        ingest(collection, [str(sample)])


async def answer(url: str, request: bytes) -> tuple[int, bytes]:
    """One response."""
    connection = await connect(url)
    try:
        return await connection.ask(request)
    finally:
        connection.transport.close()


def compare(home: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of the comparison."""
    minimal = [search(query, effort="minimal", max_results=5) for query in QUERIES]
    modelled = [search(f"plan real {arguments.turns} search {n}", effort="low") for n in range(50)]
    measured: dict[str, Any] = {"cpus": os.cpu_count(), "turns": arguments.turns, "rows": []}
    with (
        stub_model(0.0) as model,
        thresher_server(home, policy="chat:stub", model_url=model, model_timeout_s="120") as server,
    ):
        status, response = asyncio.run(answer(server[0], minimal[0]))
        assert status == 200, response
        status, told = asyncio.run(answer(server[0], modelled[0]))  # the first one loads what the policy needs
        assert status == 200, told
        measured["body_bytes"] = len(response)
        with bare_server(response, home) as bare:
            for clients in arguments.clients:
                row: dict[str, Any] = {"clients": clients}
                row["bare"] = measure(bare, minimal, clients, arguments.seconds)
                row["minimal"] = measure(server, minimal, clients, arguments.seconds)
                row["model"] = measure(server, modelled, clients, arguments.seconds)
                measured["rows"].append(row)
                print(line(row), flush=True)
    command = [sys.executable, __file__, "--engine", str(home), "--seconds", str(arguments.seconds), "--clients"]
    for row in measured["rows"]:
        done = subprocess.run([*command, str(row["clients"])], capture_output=True, text=True, check=True)
        row["engine"] = json.loads(done.stdout)
    return measured


def line(row: dict[str, Any]) -> str:
    """One row in words."""
    shown = []
    for name in ("bare", "minimal", "model"):
        one = row[name]
        wrong = f", FAILED {one['failed']}" if one["failed"] else ""
        ms = f"{one['p50_ms']}/{one['p95_ms']}/{one['p99_ms']} ms"
        shown.append(f"{name} {one['per_s']}/s, {ms}, {one['cpu_ms']} CPU ms each, client {one['client_cpu']}{wrong}")
    return f"{row['clients']:4} clients: " + "; ".join(shown)


def report(measured: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [
        f"{measured['cpus']} cores, responses of {measured['body_bytes']} bytes; latencies are p50/p95/p99 in ms; "
        "CPU ms are of the server for one request",
        "| clients | bare /s | ms | CPU ms | minimal /s | ms | CPU ms | bare ÷ minimal | engine alone /s | CPU ms "
        "| model /s | ms | CPU ms |",
        "|" + "---|" * 13,
    ]
    for row in measured["rows"]:
        shown = {
            name: f"{row[name]['per_s']} | {row[name]['p50_ms']} / {row[name]['p95_ms']} / {row[name]['p99_ms']} | "
            f"{row[name]['cpu_ms']}"
            for name in ("bare", "minimal", "model")
        }
        ratio = round(row["bare"]["per_s"] / max(row["minimal"]["per_s"], 0.1), 1)
        lines.append(
            f"| {row['clients']} | {shown['bare']} | {shown['minimal']} | {ratio} | {row['engine']['per_s']} | "
            f"{row['engine']['cpu_ms']} | {shown['model']} |"
        )
    return "\n".join(lines)


# --- leaks


async def say(url: str, request: bytes) -> tuple[int, bytes]:
    """A request on a connection of its own."""
    return await answer(url, request)


async def hang_up(url: str, request: bytes, moment: Literal["sending", "sent", "reading"]) -> None:
    """Leave in the midst of the request, right after it, or in the midst of the response."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request if moment != "sending" else request[: len(request) * 2 // 3])
        await writer.drain()
        if moment == "reading":
            await reader.read(20)
    finally:
        writer.transport.abort()


async def one_of_all(url: str, number: int) -> None:
    """Request `number` of the mix. What is answered is checked: a leak test of refusals would find nothing."""
    query = QUERIES[number % len(QUERIES)]
    kind = number % 20
    expected = 200
    if kind < 8:
        status, _ = await say(url, search(query, effort="minimal"))
    elif kind < 11:
        status, body = await say(url, search(query, effort="minimal", stream=True))
        assert b"search.completed" in body, body[-300:]
    elif kind == 11:
        status, body = await say(url, search(f"plan real 3 search {number}", effort="low", stream=True))
        assert b"search.completed" in body, body[-300:]
    elif kind == 12:
        expected = 202
        status, body = await say(url, search(query, effort="minimal", background=True))
        found = json.loads(body)["id"]
        _, told = await say(url, message("GET", f"/v1/searches/{found}/events"))
        assert b"search.completed" in told, told[-300:]
    elif kind == 13:
        expected = 422
        status, _ = await say(url, search(query, effort="minimal", qery=1))
    elif kind == 14:
        expected = 422
        status, _ = await say(url, message("POST", "/v1/search", b"{"))
    elif kind == 15:
        expected = 404
        status, _ = await say(url, message("GET", f"/v1/searches/search_{number}"))
    elif kind == 16:
        expected = 404
        status, _ = await say(url, message("POST", "/v1/search", b'{"query":"x","collections":["none"]}'))
    elif kind == 17:
        return await hang_up(url, search(query, effort="minimal"), "sending")
    elif kind == 18:
        return await hang_up(url, search(f"plan real 3 search {number}", effort="low"), "sent")
    else:
        return await hang_up(url, search(query, effort="minimal", stream=True), "reading")
    assert status == expected, (kind, status)


async def mixed(url: str, first: int, count: int, clients: int) -> None:
    """`count` requests of the mix from request `first` on, `clients` at once."""
    numbers = iter(range(first, first + count))

    async def one() -> None:
        for number in numbers:
            await one_of_all(url, number)

    await asyncio.gather(*(one() for _ in range(clients)))


def of_process(pid: int) -> dict[str, float]:
    """What the system knows of a process."""
    place = Path(f"/proc/{pid}")
    return {
        "rss_mb": int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "fds": float(len(os.listdir(place / "fd"))),
        "threads": float(len(os.listdir(place / "task"))),
    }


async def holdings(url: str, pid: int) -> dict[str, float]:
    """What the server has now, once it has come to rest: the least of a few looks."""
    await asyncio.sleep(1)
    looks = []
    for _ in range(5):
        await asyncio.sleep(0.3)
        _, body = await say(url, message("GET", "/metrics"))
        values = dict(row.rsplit(" ", 1) for row in body.decode().splitlines() if not row.startswith("#"))
        running = sum(float(value) for name, value in values.items() if name.startswith("thresher_searches_in_flight"))
        looks.append({**of_process(pid), "tasks": float(values["thresher_tasks"]), "in_flight": running})
    return {name: round(min(look[name] for look in looks), 1) for name in looks[0]}


WARM_UP = 100
"""Requests at least: clients, threads and files reach their number only after several rounds of the mix."""


async def leak(url: str, pid: int, count: int, clients: int) -> list[dict[str, float]]:
    """What the server has after the warm-up, and after each quarter of the requests."""
    warm = max(WARM_UP, count // 10)
    await mixed(url, 0, warm, clients)
    seen = [{"requests": float(warm), **await holdings(url, pid)}]
    for quarter in range(4):
        await mixed(url, warm + quarter * (count // 4), count // 4, clients)
        seen.append({"requests": float(warm + (quarter + 1) * (count // 4)), **await holdings(url, pid)})
        print(json.dumps(seen[-1]), flush=True)
    return seen


def leaks(seen: Sequence[dict[str, float]], bound_mb: float) -> list[str]:
    """What the server has kept that it should not."""
    first, last = seen[0], seen[-1]
    allowed = {"rss_mb": bound_mb, "fds": EXTRA_FDS, "threads": EXTRA_THREADS, "tasks": EXTRA_TASKS, "in_flight": 0}
    return [
        f"{name} went from {first[name]} to {last[name]}, more than {most} more"
        for name, most in allowed.items()
        if last[name] - first[name] > most
    ]


def main() -> None:
    """Run the benchmark, or be one of the processes that it starts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 10, 50, 100, 200])
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each figure is measured")
    parser.add_argument("--turns", type=int, default=3, help="turns of a search with the stub model")
    parser.add_argument("--leak", type=int, default=0, metavar="N", help="look for leaks over N requests instead")
    parser.add_argument("--bound", type=float, default=24.0, help="MB that the server may grow by over --leak requests")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.client:
        asked = json.load(sys.stdin)
        requests = [request.encode() for request in asked["requests"]]
        print(json.dumps(asyncio.run(drive(asked["url"], requests, arguments.clients[0], arguments.seconds))))
        return
    if arguments.bare:
        with suppress(KeyboardInterrupt):
            serve_bare(arguments.bare.read_bytes())
        return
    if arguments.engine:
        os.environ["THRESHER_HOME"] = str(arguments.engine)
        path = collection_path(COLLECTION)
        print(json.dumps(asyncio.run(drive_engine(path, arguments.clients[0], arguments.seconds))))
        return
    with tempfile.TemporaryDirectory(prefix="thresher-http-") as folder:
        home = Path(folder)
        build(home)
        if not arguments.leak:
            measured = compare(home, arguments)
            print(report(measured))
        else:
            with (
                stub_model(0.0) as model,
                thresher_server(home, policy="chat:stub", model_url=model) as (url, pid),
            ):
                seen = asyncio.run(leak(url, pid, arguments.leak, clients=8))
            measured = {"seen": seen, "leaks": leaks(seen, arguments.bound)}
            print("\n".join(measured["leaks"]) or f"no leak over {arguments.leak} requests: {seen[0]} -> {seen[-1]}")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if measured.get("leaks"):
        sys.exit(1)


if __name__ == "__main__":
    main()
