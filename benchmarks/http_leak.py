"""The server does not grow: after 10,000 requests of all kinds it holds the memory, descriptors and threads it had.

Compared: the server with itself, after a warm-up of a tenth of the requests and after each quarter of the rest. The
    mix: searches, streams, background searches, errors of four sorts, clients that hang up at three moments.
Command: python benchmarks/http_leak.py --json http_leak.json
Takes: about 2 minutes.
Output: memory (MB), file descriptors, threads, tasks and searches in flight at each look; then what has grown by more
    than it may (`--bound` MB, a few descriptors). Ends with status 1 if something has.
Not shown: growth over days; a collection that is written to meanwhile; a leak that shows only with a real model.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from support.command import begin, parse, parser
from support.command import leave as written
from support.http_client import answer, message
from support.http_server import QUERIES, build, search, thresher_server
from support.stub_model import served as stub_model

EXTRA_FDS, EXTRA_THREADS, EXTRA_TASKS = 16, 2, 2
"""What may be open more after than before: files of connections that were not needed before, by eight clients; a
thread of a pool that was not full. A descriptor that is kept by one request in 600 is still found over 10,000."""


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
        status, _ = await answer(url, search(query, effort="minimal"))
    elif kind < 11:
        status, body = await answer(url, search(query, effort="minimal", stream=True))
        assert b"search.completed" in body, body[-300:]
    elif kind == 11:
        status, body = await answer(url, search(f"plan real 3 search {number}", effort="low", stream=True))
        assert b"search.completed" in body, body[-300:]
    elif kind == 12:
        expected = 202
        status, body = await answer(url, search(query, effort="minimal", background=True))
        found = json.loads(body)["id"]
        _, told = await answer(url, message("GET", f"/v1/searches/{found}/events"))
        assert b"search.completed" in told, told[-300:]
    elif kind == 13:
        expected = 422
        status, _ = await answer(url, search(query, effort="minimal", qery=1))
    elif kind == 14:
        expected = 422
        status, _ = await answer(url, message("POST", "/v1/search", b"{"))
    elif kind == 15:
        expected = 404
        status, _ = await answer(url, message("GET", f"/v1/searches/search_{number}"))
    elif kind == 16:
        expected = 404
        status, _ = await answer(url, message("POST", "/v1/search", b'{"query":"x","collections":["none"]}'))
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
        _, body = await answer(url, message("GET", "/metrics"))
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
    """Run it, and end with status 1 on a leak."""
    made = parser(__doc__)
    made.add_argument("--requests", type=int, default=10_000, metavar="N")
    made.add_argument("--bound", type=float, default=24.0, help="MB that the server may grow by")
    # A process that has answered few requests still grows, whatever it is.
    options = parse(made, quick={"requests": 80, "bound": 200.0})
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = begin(options)
    with tempfile.TemporaryDirectory(prefix="thresher-http-") as folder:
        build(Path(folder))
        with (
            stub_model(0.0) as model,
            thresher_server(Path(folder), policy="chat:stub", model_url=model) as (url, pid),
        ):
            seen = asyncio.run(leak(url, pid, options.requests, clients=8))
    grown = leaks(seen, options.bound)
    print("\n".join(grown) or f"no leak over {options.requests} requests: {seen[0]} -> {seen[-1]}")
    written(options, head, {"seen": seen, "leaks": grown})
    if grown:
        sys.exit(1)


if __name__ == "__main__":
    main()
