"""kill -9 at random moments of an ingestion: what it had acknowledged is there, and it goes on to the end.

A fifth of `THRESHER_TEST_KILLS` (50) happens here, the others in tests/corpus/storage/test_crash.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.ingestion.ingest import ingest

SEED = int(os.environ.get("THRESHER_TEST_SEED", "20261130"))
KILLS = max(1, round(int(os.environ.get("THRESHER_TEST_KILLS", "50")) * 0.2))
RECORDS = 1_500
FILES = 60
CHILD = """
import sys
from pathlib import Path
from support import HashEmbedder
from thresher.corpus.collection import Collection
from thresher.corpus.ingestion.ingest import ingest
path = Path(sys.argv[1])
opened = Collection.open(path, embedder=HashEmbedder(), exact_below=0) if (path / "manifest.json").exists() \
    else Collection.create(path, HashEmbedder(), exact_below=0)
with opened as collection:
    print("ready", flush=True)
    ingest(collection, [Path(sys.argv[2])], on_progress=lambda p: print(p.chunks, flush=True))
print("done", flush=True)
"""


def marker(name: str) -> str:
    return f"marker{name}x"


def lay_out(root: Path) -> None:
    root.mkdir()
    records = [{"id": f"r{n}", "text": f"Record {marker(f'r{n}')} tells of voyage {n}."} for n in range(RECORDS)]
    (root / "records.jsonl").write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    for n in range(FILES):
        (root / f"f{n:02}.md").write_text(
            f"# File {n}\n\nFile {marker(f'f{n:02}')} tells of port {n}.", encoding="utf-8"
        )


def ingest_until_killed(collection: Path, root: Path, said: int, delay: float) -> int | None:
    """Kill the ingestion `delay` seconds after it told of its progress `said` times.

    Returns the chunks it acknowledged, or None if it was done before.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(collection), str(root)], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        lines = [child.stdout.readline().strip() for _ in range(said)]
        timer = threading.Timer(delay, child.send_signal, [signal.SIGKILL])
        timer.start()
        lines = [line for line in [*lines, *child.stdout.read().split()] if line]
        timer.cancel()
    return None if lines and lines[-1] == "done" else max([0, *(int(line) for line in lines)])


def documents_found_whole(path: Path, rng: random.Random) -> int:
    """Open what the kill left; everything in it is whole and found through every door. Returns how much that is."""
    with Collection.open(path, embedder=HashEmbedder(), exact_below=0) as collection:
        report = collection.verify()
        assert report.ok, report.problems
        assert collection.stats().pending == 0
        names = [info.id for info in collection.documents()]
        for name in rng.sample(names, min(8, len(names))):
            (chunk,) = collection.read(name)
            word = marker(name.removesuffix(".md"))
            assert word in chunk.text
            assert [hit.chunk.id for hit in collection.grep(word)] == [chunk.id]
            assert chunk.id in [hit.chunk.id for hit in collection.search(word) if hit.bm25 is not None]
        for source in collection.sources():
            assert source.status is Status.INDEXED or "interrupted" in (source.reason or ""), source
        return len(names)


@pytest.mark.slow
def test_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    root = tmp_path / "docs"
    lay_out(root)
    kills, collection, held, in_all = 0, 0, 0, 0
    while kills < KILLS:
        path = tmp_path / f"c{collection}"
        acknowledged = ingest_until_killed(path, root, rng.randrange(8), rng.uniform(0, 0.3))
        if acknowledged is None:  # it was faster than the kill: the next one starts a new collection
            collection, held = collection + 1, 0
            continue
        kills, in_all = kills + 1, in_all + acknowledged
        found = documents_found_whole(path, rng)
        print(f"seed {SEED} kill {kills}: {acknowledged} acknowledged after {held}, {found} held")
        assert found >= held + acknowledged
        collection, held = (collection, found) if found < RECORDS + FILES else (collection + 1, 0)
    assert in_all > 0
    with Collection.open(path, embedder=HashEmbedder(), exact_below=0) as opened:
        ingest(opened, [root])
        assert {source.status for source in opened.sources()} == {Status.INDEXED}
        assert opened.stats().documents == RECORDS + FILES
        assert opened.verify().ok
