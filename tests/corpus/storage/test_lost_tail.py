"""The record lost its newest operations (a power loss, an older copy of the file) after the indexes had applied them.

The ids of what was lost are given out again: an entry that an index kept would then stand for another passage.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chroma_support import ChromaRun
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import DEFAULT_BACKENDS, Backends, Child, Server
from thresher.corpus.collection import Collection

KEPT = {f"d{i}": f"passage {i} of the voyage to port{i}" for i in range(20)}
LOST = {f"d{i}": f"ruined{i} entry nobody may meet again" for i in (3, 4, 5)}
LATER = {f"new{i}": f"harbour{i} log written afterwards" for i in (1, 2, 3)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ChromaRun]:
    running = ChromaRun(tmp_path / "server")
    yield running
    running.kill()


@pytest.fixture(params=["in-process", "child", "server"])
def backends(request: pytest.FixtureRequest) -> Backends:
    if request.param == "server":
        return Backends(dense=Server(request.getfixturevalue("server").url))
    return DEFAULT_BACKENDS if request.param == "in-process" else Backends(dense=Child())


def write(opened: Collection, texts: dict[str, str]) -> None:
    """Each in an operation of its own where order matters: what a session writes first is treated with more care."""
    if texts is KEPT:
        opened.upsert([prepared(name, text) for name, text in texts.items()], source_id="s")
        return
    for name, text in texts.items():
        opened.upsert([prepared(name, text)], source_id="s")


def lose_the_tail(path: Path, backends: Backends) -> None:
    """A collection of KEPT whose indexes saw LOST come, too: as many chunks as before, others with new ids."""
    with Collection.create(path, EMBEDDER, exact_below=0, backends=backends) as opened:
        write(opened, KEPT)
        opened.search("voyage")
    shutil.copyfile(path / "corpus.db", path.parent / "earlier.db")
    with Collection.open(path, embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        write(opened, LOST)
        opened.search("ruined3")
    shutil.copyfile(path.parent / "earlier.db", path / "corpus.db")


def check(opened: Collection, texts: dict[str, str]) -> None:
    assert opened.wait_for_repair(60)
    assert opened.verify().problems == ()
    for name, text in texts.items():
        best = opened.search(text, limit=3)[0]
        assert best.chunk.document_id == name
        assert best.bm25 is not None
        assert best.dense == pytest.approx(1.0, abs=1e-3)
    for text in LOST.values():
        for hit in opened.search(text, limit=50):
            cosine = float(np.dot(opened.vectors([hit.chunk.id])[0], EMBEDDER.embed_queries([text])[0]))
            assert hit.dense is None or hit.dense == pytest.approx(cosine, abs=1e-3)
            assert hit.bm25 is None or set(text.split()) & set(hit.chunk.text.split())


def test_what_was_lost_is_forgotten_by_the_indexes(tmp_path: Path, backends: Backends) -> None:
    lose_the_tail(tmp_path / "c", backends)
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        check(opened, KEPT)


def test_ids_that_are_given_out_again_stand_for_the_new_passages(tmp_path: Path, backends: Backends) -> None:
    """Written before anything was searched, so that no comparison with the record comes in between."""
    lose_the_tail(tmp_path / "c", backends)
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        write(opened, LATER)
        check(opened, {**KEPT, **LATER})


def test_also_when_they_were_given_out_while_chroma_was_away(tmp_path: Path, server: ChromaRun) -> None:
    backends = Backends(dense=Server(server.url))
    lose_the_tail(tmp_path / "c", backends)
    server.kill()
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        write(opened, LATER)
    server.start()
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0, backends=backends) as opened:
        write(opened, {"last": "the very last entry"})
        check(opened, {**KEPT, **LATER})
