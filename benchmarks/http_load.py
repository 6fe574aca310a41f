"""The HTTP API answers a search without a model in a few milliseconds, and a few hundred of them a second.

Compared: `POST /v1/search` at effort minimal (`minimal`: one hybrid search of the packaged sample) with bare uvicorn
    that reads the body and sends the bytes that Thresher answered to the same request (`bare`), and with the same
    searches without HTTP (`engine`); and a search at effort low with a stub model that answers at once (`model`).
Command: python benchmarks/http_load.py --json http_load.json
Takes: about 3 minutes.
Output: a row for each number of clients: requests a second, p50 / p95 / p99 in milliseconds, CPU milliseconds of the
    server for one request, and bare uvicorn's rate over ours. `client_cpu` is the share of a core that the client
    used; near 1 it would be the client that is measured.
Not shown: TLS, a proxy, a network; several server processes; a real model; large collections. Server and client share
    the cores of one machine. Other load changes all figures of a run, but their ratios less, and the CPU time least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.bare_http import bare_server
from support.command import begin, leave, parse, parser
from support.http_client import answer
from support.http_server import QUERIES, build, search, thresher_server
from support.stub_model import served as stub_model
from support.timing import child_environment, in_child


def measure(server: tuple[str, int], requests: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """`drive` in a process of its own, on the server of that URL and process id; and what it cost the server."""
    url, pid = server
    before = cpu_of(pid)
    asked = {"url": url, "requests": [request.decode() for request in requests]}
    command = [sys.executable, "-m", "support.http_client", str(clients), str(seconds)]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=False, env=child_environment()
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    result: dict[str, Any] = json.loads(done.stdout)
    result["cpu_ms"] = round((cpu_of(pid) - before) / max(1, result["sent"]) * 1e3, 2)
    return result


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    for row in measured["rows"]:
        row["engine"] = in_child("bare_engine", [str(home), str(row["clients"]), str(arguments.seconds)])
        if "error" in row["engine"]:
            raise RuntimeError(f"the engine without a server {row['engine']['error']}")
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


def main() -> None:
    """Run the comparison."""
    made = parser(__doc__)
    made.add_argument("--clients", type=int, nargs="+", default=[1, 10, 50, 100, 200])
    made.add_argument("--seconds", type=float, default=5.0, help="how long each figure is measured")
    made.add_argument("--turns", type=int, default=3, help="turns of a search with the stub model")
    options = parse(made, quick={"clients": [1, 8], "seconds": 1.0})
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = begin(options)
    with tempfile.TemporaryDirectory(prefix="thresher-http-") as folder:
        build(Path(folder))
        measured = compare(Path(folder), options)
    print(report(measured))
    leave(options, head, measured)


if __name__ == "__main__":
    main()
