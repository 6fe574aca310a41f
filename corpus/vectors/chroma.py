"""Approximate search by Chroma's HNSW index inside this process.

Killed while it writes, it can leave a directory that crashes or hangs whoever opens it. The marker of `claim` tells an
unclean end; the files are then compared (see `files`), and `probe` tries the directory in a child process first. And
one client per directory: a generation's directory is never reopened under the same name after it was replaced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher.corpus.vectors.claim import Claim
from thresher.corpus.vectors.files import ChromaUnusable, check_files, check_save
from thresher.corpus.vectors.rows import CONFIGURATION, TOLERATED_MISSES, ChromaRows
from thresher.corpus.vectors.scrub import scrub_unused

COLLECTION = "chunks"
_PROBE_SECONDS = 60.0
_SAMPLE = 32


class ChromaIndex(ChromaRows):
    """An `OpenIndex` on a local Chroma directory."""

    def __init__(self, directory: Path) -> None:
        """Open the index in `directory`, or create one there.

        Raises:
            ChromaUnusable: the directory is damaged, or was when tried in a child process.
            IndexUnreachable: a child that a dead owner left behind still has it.
            Exception: whatever Chroma raises when it cannot open it.
        """
        self._claim = Claim(directory)
        self._directory = directory
        try:
            self.was_unclean = self._claim.was_unclean and directory.exists()
            check_files(directory)
            if self.was_unclean:
                check_save(directory)
                probe(directory)
            directory.mkdir(parents=True, exist_ok=True)
            self._client, collection = open_directory(directory)
        except BaseException:
            self._claim.release(clean=False)
            raise
        super().__init__(collection)

    def close(self) -> None:
        """See `VectorIndex`."""
        self._client.close()
        scrub_unused(self._directory)
        self._claim.release(clean=True)

    def abandon(self) -> None:
        """See `OpenIndex`."""
        with suppress(Exception):
            self._client.close()
        self._claim.release(clean=False)


def open_directory(directory: Path) -> tuple[Any, Any]:
    """(client, collection) on a directory, created if it is empty."""
    import chromadb
    from chromadb.config import Settings

    client: Any = chromadb.PersistentClient(str(directory), settings=Settings(anonymized_telemetry=False))
    try:
        collection = client.get_or_create_collection(COLLECTION, configuration=CONFIGURATION, embedding_function=None)
    except BaseException:
        # Chroma caches clients by path; one left behind would be handed out again for a rebuilt directory.
        client.close()
        raise
    return client, collection


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
    require_found(directory, result)
    return result


def require_found(directory: Path, result: ProbeResult) -> None:
    """Raise `ChromaUnusable` if too many of a sample did not find themselves."""
    if result.sampled - result.found > result.sampled * TOLERATED_MISSES:
        raise ChromaUnusable(
            f"{result.sampled - result.found} of {result.sampled} sampled vectors in {directory} do not find themselves"
        )


def try_directory(directory: Path, *, sample: int = _SAMPLE) -> ProbeResult:
    """What `probe` runs in the child: count, then look for a sample of vectors by themselves."""
    client, collection = open_directory(directory)
    result = ProbeResult(*ChromaRows(collection).find_themselves(sample))
    client.close()
    return result
