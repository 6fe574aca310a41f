"""`thresher serve` on the packaged sample, in a process of its own, and the requests that benchmarks send it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from support.http_client import message
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.paths import collection_path

TOPICS = ("master", "cargo", "loss", "owner")
QUERIES = [f"{topic} of the {thing}" for topic in TOPICS for thing in ("ferry", "harbour")]
COLLECTION = "load"


def build(home: Path) -> None:
    """The packaged sample as a collection."""
    os.environ["THRESHER_HOME"] = str(home)
    sample = Path(str(files("thresher.corpus"))) / "sample" / "docs"
    with Collection.create(collection_path(COLLECTION), load_embedder("wordllama"), name=COLLECTION) as collection:
        ingest(collection, [str(sample)])


def search(query: str, **fields: Any) -> bytes:
    """A search as bytes."""
    return message("POST", "/v1/search", json.dumps({"query": query, "collections": [COLLECTION], **fields}).encode())


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
