"""Ingestion keeps up with the embedder: it reaches 85 % of what the model does by itself with the whole machine.

Compared: passages a second of the whole pipeline (reading, chunking, embedding, SQLite, BM25, Chroma) with those of
    the embedder alone, before and after, on the very strings that the pipeline embeds and in batches as large; so
    other load weighs on both sides.
Command: python benchmarks/ingestion.py --texts ../shared/data --json ingestion.json
Takes: about 4 minutes.
Output: a row an embedder; `share` is the rate over the embedder's own. A slow model is easy to keep up with, a fast
    one (wordllama, static vectors) is not: there the record and the indexes are what takes the time.
Not shown: parsing of PDF and Office files (texts come as JSONL); a GPU or an endpoint that embeds; large collections:
    from 5,000 passages on Chroma is followed as well.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.sets import SAMPLE
from support.synthetic import read_texts

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
        lines = _lines(texts)
        stride = max(1, len(lines) // records)
        source = root / "records.jsonl"
        source.write_text("\n".join(lines[::stride][:records]))
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


def _lines(texts: Path) -> list[str]:
    """A JSON record for each text below a folder, with ids of their own."""
    return [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(read_texts(texts))]


def main() -> None:
    """Print a row an embedder."""
    made = parser(__doc__)
    made.add_argument("--embedder", nargs="+", default=["minilm", "wordllama"])
    made.add_argument("--texts", type=Path, default=SAMPLE / "docs", help="folder with corpus.jsonl, .md or .txt files")
    made.add_argument(
        "--records", type=int, nargs="+", default=[4_000, 20_000], help="for each embedder; or one for all"
    )
    options = parse(made, quick={"records": [30]})
    head = begin(options)
    counts = options.records if len(options.records) > 1 else options.records * len(options.embedder)
    if len(counts) != len(options.embedder):
        made.error("give as many --records as --embedder, or one")
    names = ["embedder", "chunks", "rate", "embedder_rate", "share", "seconds"]
    pipelines = []
    for spec, records in zip(options.embedder, counts, strict=True):
        pipelines.append(measure(spec, options.texts, records))
    print_table(names, [[row[name] for name in names] for row in pipelines])
    leave(options, head, {"pipelines": pipelines})


if __name__ == "__main__":
    main()
