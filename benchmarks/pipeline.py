"""Ingestion of real text through the real pipeline, as a share of the embedder's own rate: `pipeline.py SPEC TEXTS N`.

The embedder's own rate is taken before and after, on the very strings that the pipeline embeds, in batches as large as
the pipeline's, with nothing else running: other load then weighs on both sides.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders import load_embedder
from thresher.corpus.embedders.base import Embedder, EmbedderInfo
from thresher.corpus.ingestion.ingest import ingest


class Recorded:
    """An embedder that keeps what it was given, batch by batch, and counts its seconds."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.batches: list[list[str]] = []
        self.seconds = 0.0

    @property
    def info(self) -> EmbedderInfo:
        """The embedder's own."""
        return self._embedder.info

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`."""
        self.batches.append(list(texts))
        started = time.perf_counter()
        rows = self._embedder.embed_passages(texts)
        self.seconds += time.perf_counter() - started
        return rows

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`."""
        return self._embedder.embed_queries(texts)


def measure(spec: str, texts: Path, records: int) -> dict[str, Any]:
    """Ingest `records` records of the sets under `texts` with the embedder `spec`, into a passing collection."""
    embedder = load_embedder(spec)
    embedder.embed_passages(["warm up"] * 8)
    recorded = Recorded(embedder)
    root = Path(tempfile.mkdtemp(prefix="thresher-bench-"))
    try:
        lines = [
            line
            for file in sorted(texts.rglob("corpus.jsonl"))
            for line in file.read_text(encoding="utf-8").split("\n")
            if line
        ]
        stride = max(1, len(lines) // records)
        source = root / "records.jsonl"
        source.write_text("\n".join(_own_id(line, i) for i, line in enumerate(lines[::stride][:records])))
        warm, _ = _alone(embedder, _sample(lines))
        with Collection.create(root / "collection", recorded) as collection:
            started = time.perf_counter()
            ingest(collection, [str(source)])
            seconds = time.perf_counter() - started
            chunks = collection.chunk_count
        passages = sum(len(batch) for batch in recorded.batches)
        alone, again = _alone(embedder, recorded.batches), _alone(embedder, recorded.batches)
        own = passages / min(alone[1], again[1])
        return {
            "embedder": spec,
            "chunks": chunks,
            "rate": round(chunks / seconds, 1),
            "embedder_rate": round(own, 1),
            "share": round(passages / seconds / own, 3),
            "embedding_s": round(recorded.seconds, 2),
            "seconds": round(seconds, 2),
            "warm_rate": round(warm, 1),
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _alone(embedder: Embedder, batches: Sequence[Sequence[str]]) -> tuple[float, float]:
    """(strings a second, seconds) of the embedder by itself."""
    started = time.perf_counter()
    for batch in batches:
        embedder.embed_passages(batch)
    seconds = time.perf_counter() - started
    return sum(len(batch) for batch in batches) / seconds, seconds


def _sample(lines: Sequence[str]) -> list[list[str]]:
    return [[json.loads(line)["text"][:1_000] for line in lines[:64]]]


def _own_id(line: str, number: int) -> str:
    record = json.loads(line)
    return json.dumps({"id": f"{number}-{record['id']}", "title": record.get("title", ""), "text": record["text"]})


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
