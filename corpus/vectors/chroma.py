"""Approximate search by Chroma's HNSW index, embeddings only.

What experience with the local engine dictates:
- Killed while it writes, it can leave a directory that crashes or hangs whoever opens it. An `.open` marker next to
  the directory tells an unclean end, and `probe` then tries the directory in a child process first.
- One client per directory: a generation's directory is never reopened under the same name after it was replaced.
- At most 5,461 rows a call; adding an id it has seen is slow (12 ms against 1 ms), so known ids are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.paths import sync_directory

COLLECTION = "chunks"
EF_SEARCH = 200
_BATCH = 2_000
_LINK_LISTS_FLOOR = 64 * 1024 * 1024
_PROBE_SECONDS = 60.0

TOLERATED_MISSES = 0.1
"""Share of sampled vectors that may fail to find themselves before an index counts as damaged."""


class ChromaUnusable(Exception):
    """The directory must not be opened in this process."""


class ChromaIndex:
    """A `VectorIndex` on a local Chroma directory."""

    def __init__(self, directory: Path) -> None:
        """Open the index in `directory`, or create one there.

        Raises:
            ChromaUnusable: the directory is damaged, or was when tried in a child process.
            Exception: whatever Chroma raises when it cannot open it.
        """
        self._marker = directory.with_name(f"{directory.name}.open")
        check_files(directory)
        self.was_unclean = self._marker.exists() and directory.exists()
        if self.was_unclean:
            probe(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._marker.touch()
        sync_directory(self._marker.parent)
        self._client, self._collection = open_directory(directory)

    def apply(self, *, add: Sequence[int], vectors: Vectors, remove: Sequence[int]) -> None:
        """See `VectorIndex`."""
        for start in range(0, len(remove), _BATCH):
            # Deleting an id that is not there only logs, but deletes of known ids need not be mixed with them.
            known = self._known(remove[start : start + _BATCH])
            if known:
                self._collection.delete(ids=known)
        for start in range(0, len(add), _BATCH):
            batch = add[start : start + _BATCH]
            known_ids = set(self._known(batch))
            rows = [i for i, chunk_id in enumerate(batch) if str(chunk_id) not in known_ids]
            if rows:
                self._collection.add(
                    ids=[str(batch[i]) for i in rows], embeddings=vectors[start : start + _BATCH][rows]
                )

    def search(self, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """See `VectorIndex`."""
        if k <= 0:
            return []
        answer = self._collection.query(query_embeddings=[vector], n_results=k, include=["distances"])
        # Beyond six digits float32 distances are noise; equal vectors must tie.
        hits = [
            (int(chunk_id), round(1.0 - float(distance), 6))
            for chunk_id, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
        ]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def ids(self) -> set[int]:
        """See `VectorIndex`."""
        return {int(i) for i in self._collection.get(include=[])["ids"]}

    def count(self) -> int:
        """See `VectorIndex`."""
        return int(self._collection.count())

    def close(self) -> None:
        """See `VectorIndex`."""
        self._client.close()
        self._marker.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close without calling the directory clean."""
        self._client.close()

    def _known(self, chunk_ids: Sequence[int]) -> list[str]:
        found: list[str] = self._collection.get(ids=[str(i) for i in chunk_ids], include=[])["ids"]
        return found


def open_directory(directory: Path) -> tuple[Any, Any]:
    """(client, collection) on a directory, created if it is empty."""
    import chromadb
    from chromadb.config import Settings

    client: Any = chromadb.PersistentClient(str(directory), settings=Settings(anonymized_telemetry=False))
    try:
        collection = client.get_or_create_collection(
            COLLECTION,
            configuration={
                "hnsw": {"space": "cosine", "ef_search": EF_SEARCH, "ef_construction": EF_SEARCH, "max_neighbors": 16}
            },
            embedding_function=None,
        )
    except BaseException:
        # Chroma caches clients by path; one left behind would be handed out again for a rebuilt directory.
        client.close()
        raise
    return client, collection


def check_files(directory: Path) -> None:
    """Raise `ChromaUnusable` if a link list is absurdly large, the mark of an index killed while it was saved."""
    for links in directory.glob("*/link_lists.bin"):
        level0 = links.with_name("data_level0.bin")
        plausible = max(_LINK_LISTS_FLOOR, level0.stat().st_size if level0.exists() else 0)
        if links.stat().st_size > plausible:
            raise ChromaUnusable(f"{links} has {links.stat().st_size} bytes, more than {plausible} cannot be sound")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the child process saw: how many vectors, and how many of a sample were found by their own vector."""

    count: int
    sampled: int
    found: int


def probe(directory: Path, *, timeout_s: float = _PROBE_SECONDS) -> ProbeResult:
    """Open and query a directory in a child process, which may crash or hang in our place.

    Raises:
        ChromaUnusable: it did crash or hang, or vectors do not find themselves.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "thresher.corpus.vectors.probe", str(directory)],
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChromaUnusable(f"opening {directory} hung for {timeout_s:.0f} s") from None
    if child.returncode != 0:
        last = child.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise ChromaUnusable(f"opening {directory} ended with status {child.returncode}: {last[0]}")
    result = ProbeResult(**json.loads(child.stdout))
    if result.sampled - result.found > result.sampled * TOLERATED_MISSES:
        raise ChromaUnusable(
            f"{result.sampled - result.found} of {result.sampled} sampled vectors in {directory} do not find themselves"
        )
    return result


def try_directory(directory: Path, *, sample: int = 32) -> ProbeResult:
    """What `probe` runs in the child: count, then look for a sample of vectors by themselves."""
    client, collection = open_directory(directory)
    count = collection.count()
    ids = sorted(collection.get(include=[])["ids"], key=int)
    chosen = [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, min(sample, len(ids))).astype(int))] if ids else []
    found = 0
    if chosen:
        rows = collection.get(ids=chosen, include=["embeddings"])
        answer = collection.query(query_embeddings=rows["embeddings"], n_results=1, include=["distances"])
        # Another vector may be equal up to rounding, so the distance must be nought, whatever the id.
        found = sum(1 for distances in answer["distances"] if distances and distances[0] < 1e-3)
    client.close()
    return ProbeResult(int(count), len(chosen), found)
