"""The engine without a server: `python -m support.bare_engine HOME CLIENTS SECONDS` searches, as many at once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from support.http_server import COLLECTION, QUERIES
from thresher.corpus.collection import Collection
from thresher.corpus.paths import collection_path
from thresher.engine.requests import Effort, SearchRequest
from thresher.engine.search import SearchEngine


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


if __name__ == "__main__":
    os.environ["THRESHER_HOME"] = sys.argv[1]
    print(json.dumps(asyncio.run(drive_engine(collection_path(COLLECTION), int(sys.argv[2]), float(sys.argv[3])))))
