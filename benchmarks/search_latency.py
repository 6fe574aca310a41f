"""Latency of search, filtered search and grep, next to the bare indexes in the same run.

    python benchmarks/search_latency.py                      # 10,000 chunks of made-up text
    python benchmarks/search_latency.py --texts DIR          # real text: every .txt, .md and .jsonl under DIR
    python benchmarks/search_latency.py --chunks 100000 --repeat 300

No model is involved: vectors are random but clustered, and query vectors are given. Times are in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash
from thresher.corpus.filters import parse_filter
from thresher.corpus.lexical.tantivy_index import TantivyIndex
from thresher.corpus.vectors.chroma import ChromaIndex

CHUNKS_PER_DOCUMENT = 4
CHUNK_CHARACTERS = 1_200


class ClusteredEmbedder:
    """Stands in for a model: vectors around random centres, drawn anew in the order of the calls."""

    def __init__(self, dimension: int, seed: int) -> None:
        self.info = EmbedderInfo("benchmark", dimension, "1")
        self._random = np.random.default_rng(seed)
        self._centres = self._random.normal(size=(200, dimension))

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        centres = self._centres[self._random.integers(0, len(self._centres), len(texts))]
        rows = centres + 0.7 * self._random.normal(size=centres.shape)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self.embed_passages(texts)


def made_up_texts(rng: random.Random) -> Iterator[str]:
    """Endless text with Zipf-distributed words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(30_000)]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    while True:
        yield " ".join(rng.choices(words, weights, k=2_000))


def real_texts(directory: Path) -> Iterator[str]:
    """The text of every file, again and again if there is too little of it."""
    files = sorted(p for p in directory.rglob("*") if p.suffix in (".txt", ".md", ".jsonl"))
    if not files:
        raise SystemExit(f"no .txt, .md or .jsonl file under {directory}")
    while True:
        for file in files:
            content = file.read_text(encoding="utf-8", errors="replace")
            if file.suffix != ".jsonl":
                yield content
                continue
            for line in content.splitlines():
                record = json.loads(line)
                yield str(record.get("text") or record.get("question") or "")


def documents(texts: Iterator[str], chunks: int, embedder: ClusteredEmbedder) -> Iterator[PreparedDocument]:
    """Documents of about `CHUNKS_PER_DOCUMENT` chunks until there are `chunks`."""
    written = 0
    for number, text in enumerate(texts):
        length = min(len(text), CHUNKS_PER_DOCUMENT * CHUNK_CHARACTERS, (chunks - written) * CHUNK_CHARACTERS)
        text = text[:length]
        spans = tuple(Span(i, min(i + CHUNK_CHARACTERS, length)) for i in range(0, length, CHUNK_CHARACTERS))
        document = Document(
            f"d{number}", f"file:///d{number}", f"Document {number}", text, {"bucket": number % 20, "half": number % 2}
        )
        hashes = tuple(embedding_hash(f"{number} {span.start}") for span in spans)
        yield PreparedDocument(document, spans, hashes, embedder.embed_passages([""] * len(spans)))
        written += len(spans)
        if written >= chunks:
            return


def measure(work: Callable[[int], object], repeat: int) -> tuple[float, float]:
    """(p50, p95) in milliseconds of `work(i)`, after a tenth of `repeat` to warm up."""
    for i in range(max(1, repeat // 10)):
        work(i)
    taken = []
    for i in range(repeat):
        started = time.perf_counter()
        work(i)
        taken.append((time.perf_counter() - started) * 1e3)
    p50, p95 = np.percentile(taken, [50, 95])
    return float(p50), float(p95)


def run(arguments: argparse.Namespace, root: Path) -> None:
    """Build, measure, print."""
    rng = random.Random(arguments.seed)
    embedder = ClusteredEmbedder(arguments.dimension, arguments.seed)
    texts = real_texts(arguments.texts) if arguments.texts else made_up_texts(rng)
    path = root / "collection"
    started = time.perf_counter()
    with Collection.create(path, embedder, name="benchmark") as collection:
        batch: list[PreparedDocument] = []
        for document in documents(texts, arguments.chunks, embedder):
            batch.append(document)
            if len(batch) == 500:
                collection.upsert(batch, source_id="benchmark")
                batch = []
        collection.upsert(batch, source_id="benchmark")
        sample = [c.text for d in list(collection.documents())[::50] for c in collection.read(d.id)]
    print(f"ingest      {arguments.chunks} chunks in {time.perf_counter() - started:.1f} s")
    started = time.perf_counter()
    collection = Collection.open(path, embedder=embedder)
    print(f"open        {(time.perf_counter() - started) * 1e3:.1f} ms")

    questions = [" ".join(rng.choice(sample).split()[:8]) or "nothing" for _ in range(arguments.repeat)]
    words = [max(question.split(), key=len) for question in questions]
    vectors = embedder.embed_queries(questions)
    few = parse_filter({"type": "eq", "key": "bucket", "value": 7})
    many = parse_filter({"type": "eq", "key": "half", "value": 1})
    results = {
        "search": measure(lambda i: collection.search(questions[i], vector=vectors[i]), arguments.repeat),
        "search, filter keeps 5 %": measure(
            lambda i: collection.search(questions[i], vector=vectors[i], where=few), arguments.repeat
        ),
        "search, filter keeps 50 %": measure(
            lambda i: collection.search(questions[i], vector=vectors[i], where=many), arguments.repeat
        ),
        "grep, literal": measure(lambda i: collection.grep(_escaped(words[i])), arguments.repeat),
        "grep, literal, no match": measure(lambda i: collection.grep(f"qqzq{i}xjx"), arguments.repeat),
        "grep, scan": measure(lambda i: collection.grep(r"\d[^\w\s]\d\d[^\w\s]\d\d"), min(arguments.repeat, 20)),
    }
    stats = collection.stats()
    print(f"dense       {stats.dense} ({stats.dense_reason}); {stats.bytes_on_disk / 1e6:.0f} MB on disk")
    collection.close()

    lexical = TantivyIndex(next((path / "tantivy").iterdir()))
    dense = ChromaIndex(next(p for p in (path / "chroma").iterdir() if p.is_dir()))
    bare_dense = measure(lambda i: dense.search(vectors[i], 100), arguments.repeat)
    bare_lexical = measure(lambda i: lexical.search(questions[i], 100), arguments.repeat)
    dense.close()
    lexical.close()
    bare = (bare_dense[0] + bare_lexical[0], bare_dense[1] + bare_lexical[1])
    print(f"{'':28}{'p50':>8}{'p95':>8}   against bare (p50, p95)")
    for name, (p50, p95) in {"bare Chroma, k=100": bare_dense, "bare tantivy, k=100": bare_lexical, **results}.items():
        ratio = "" if name.startswith("bare") else f"   ×{p50 / bare[0]:.2f}  ×{p95 / bare[1]:.2f}"
        print(f"{name:28}{p50:8.2f}{p95:8.2f}{ratio}")


def _escaped(word: str) -> str:
    return "".join(c if c.isalnum() else "." for c in word)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeat", type=int, default=200, help="measured calls of each kind")
    parser.add_argument("--texts", type=Path, help="directory of real text")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run(arguments, Path(directory))


if __name__ == "__main__":
    main()
