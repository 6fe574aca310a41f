"""What Thresher is compared with, each in a process of its own.

`python -m support.bare_systems NAME DIR REPEAT CHUNKS` prints a line of JSON.

They do less: no record, no deletions seen at once, no filters resolved elsewhere, no crash safety. They say what the
parts cost by themselves on the same vectors, passages and questions.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from support.bench_set import BenchSet
from support.grep_patterns import grep_patterns
from support.timing import bytes_under, latencies, recall_at_10, resident_mb, summary

_BATCH = 2_000
_GREP_HITS = 5  # as many as Thresher's grep gives
_DEPTH = 100  # what Thresher asks of its indexes before it fuses


def brute(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """numpy: one matrix product over all vectors, then a partial sort."""
    started = time.perf_counter()
    rows = np.array(bench.vectors)
    loaded = time.perf_counter() - started
    asked = bench.question_vectors

    def search(i: int) -> list[int]:
        scores = rows @ asked[i]
        top = np.argpartition(-scores, 10)[:10]
        found: list[int] = top[np.argsort(-scores[top], kind="stable")].tolist()
        return found

    result = {"search": latencies(search, min(repeat, 50)), "open_s": round(loaded, 2), "memory_mb": resident_mb()}
    return {**result, "recall": recall_at_10([search(i) for i in range(len(asked))], bench.truth)}


def own_chroma(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """Chroma alone on the directory that Thresher keeps (same vectors, same settings), ten and a hundred deep."""
    from thresher.corpus.vectors.chroma import open_directory

    directory = max(
        (p for p in (bench.collection / "chroma").iterdir() if p.is_dir() and p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    started = time.perf_counter()
    client, collection = open_directory(directory)
    asked = bench.question_vectors

    def search(i: int, depth: int = _DEPTH) -> list[int]:
        answer = collection.query(query_embeddings=[asked[i]], n_results=depth, include=["distances"])
        return [int(found) - 1 for found in answer["ids"][0]]

    search(0)
    first = time.perf_counter() - started
    result = {
        "open_s": round(first, 3),
        "search": latencies(search, repeat),
        "search, 10 deep": latencies(lambda i: search(i, 10), repeat),
        "recall": recall_at_10([search(i) for i in range(len(asked))], bench.truth),
        "memory_mb": resident_mb(),
    }
    client.close()
    return result


def chroma(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """Chroma as its guide uses it: default settings, passages and metadata in it, its own filters."""
    import chromadb
    from chromadb.config import Settings

    directory = bench.root / f"bare-chroma-{chunks}"
    asked = bench.question_vectors
    result: dict[str, Any] = {"chunks": chunks}
    rate = directory / "rate.json"
    if not rate.exists():
        shutil.rmtree(directory, ignore_errors=True)
    client: Any = chromadb.PersistentClient(str(directory), settings=Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection(
        "chunks", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    if not rate.exists():
        texts, spent = bench.texts(), 0.0
        for start in range(0, chunks, _BATCH):
            numbers = range(start, min(start + _BATCH, chunks))
            documents = [next(texts) for _ in numbers]
            metadata = [{"thousandth": i // 4 % 1_000, "twentieth": i // 4 % 20, "half": i // 4 % 2} for i in numbers]
            vectors = np.asarray(bench.vectors[start : start + len(numbers)])
            started = time.perf_counter()
            collection.add(ids=[str(i) for i in numbers], embeddings=vectors, documents=documents, metadatas=metadata)
            spent += time.perf_counter() - started
        rate.write_text(json.dumps({"build_rate": round(chunks / spent, 1)}))
    result |= json.loads(rate.read_text())

    def search(i: int, where: dict[str, int] | None = None) -> list[int]:
        answer = collection.query(
            query_embeddings=[asked[i]], n_results=10, where=where, include=["documents", "metadatas", "distances"]
        )
        return [int(found) for found in answer["ids"][0]]

    result["search"] = latencies(search, repeat)
    for name, where in (
        ("keeps 0.1 %", {"thousandth": 7}),
        ("keeps 5 %", {"twentieth": 7}),
        ("keeps 50 %", {"half": 1}),
    ):
        result[f"search, filter {name}"] = latencies(partial(search, where=where), min(repeat, 30), warm=2)
    if chunks == len(bench.vectors):
        result["recall"] = recall_at_10([search(i) for i in range(len(asked))], bench.truth)
    result["memory_mb"] = resident_mb()
    client.close()
    return {**result, "bytes_per_chunk": round(bytes_under(directory) / chunks)}


def own_tantivy(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """tantivy alone on the directory that Thresher keeps, a hundred deep."""
    from thresher.corpus.lexical.tantivy_index import TantivyIndex

    directory = max((bench.collection / "tantivy").iterdir(), key=lambda p: int(p.name))
    index = TantivyIndex(directory)
    texts = [question["text"] for question in bench.questions]
    result = {"search": latencies(lambda i: index.search(texts[i], _DEPTH), repeat), "memory_mb": resident_mb()}
    index.close()
    return result


def tantivy(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """tantivy as its guide uses it: English stemming, one field, the writer's default settings, parsed queries."""
    import tantivy as engine

    directory = bench.root / f"bare-tantivy-{chunks}"
    schema = (
        engine.SchemaBuilder()
        .add_integer_field("id", stored=True)
        .add_text_field("text", tokenizer_name="en_stem")
        .build()
    )
    rate = directory / "rate.json"
    if not rate.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        index = engine.Index(schema, path=str(directory))
        started = time.perf_counter()
        writer = index.writer()
        for number, text in zip(range(chunks), bench.texts(), strict=False):
            document = engine.Document()
            document.add_integer("id", number)
            document.add_text("text", text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        rate.write_text(json.dumps({"build_rate": round(chunks / (time.perf_counter() - started), 1)}))
    index = engine.Index.open(str(directory))
    searcher = index.searcher()
    texts = [question["text"] for question in bench.questions]

    def search(i: int) -> list[int]:
        query, _ = index.parse_query_lenient(texts[i], ["text"])
        hits = searcher.search(query, 10, count=False).hits
        return [searcher.doc(address)["id"][0] for _, address in hits]

    return {
        "chunks": chunks,
        **json.loads(rate.read_text()),
        "search": latencies(search, repeat),
        "memory_mb": resident_mb(),
        "bytes_per_chunk": round(bytes_under(directory) / chunks),
    }


def bm25s(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """bm25s, memory-mapped, English stop words, no stemmer: its fastest documented use."""
    import bm25s as engine

    directory = bench.root / f"bm25s-{chunks}"
    rate = directory / "rate.json"
    if not rate.exists():
        shutil.rmtree(directory, ignore_errors=True)
        passages = [text for _, text in zip(range(chunks), bench.texts(), strict=False)]
        started = time.perf_counter()
        tokens = engine.tokenize(passages, stopwords="en", show_progress=False)
        index = engine.BM25()
        index.index(tokens, show_progress=False)
        spent = time.perf_counter() - started
        index.save(str(directory))
        rate.write_text(json.dumps({"build_rate": round(chunks / spent, 1), "build_memory_mb": resident_mb()}))
    started = time.perf_counter()
    index = engine.BM25.load(str(directory), mmap=True)
    loaded = time.perf_counter() - started
    texts = [question["text"] for question in bench.questions]

    def search(i: int) -> object:
        tokens = engine.tokenize([texts[i]], stopwords="en", show_progress=False)
        return index.retrieve(tokens, k=10, show_progress=False)

    return {
        "chunks": chunks,
        **json.loads(rate.read_text()),
        "open_s": round(loaded, 3),
        "search": latencies(search, min(repeat, 100)),
        "memory_mb": resident_mb(),
        "bytes_per_chunk": round(bytes_under(directory) / chunks),
    }


def scan(bench: BenchSet, repeat: int, chunks: int) -> dict[str, Any]:
    """google-re2 over passages in memory, one after the other, until five match: grep without an index."""
    import re2

    texts = list(bench.texts())
    stride = max(1, len(texts) // 997)
    found: dict[str, Any] = {}
    every: list[float] = []
    for kind, patterns in grep_patterns(texts[::stride], max(10, repeat // 4), 1).items():
        taken = []
        for pattern in patterns:
            started = time.perf_counter()
            search, hits = re2.compile(pattern).search, 0
            for text in texts:
                if search(text) is not None:
                    hits += 1
                    if hits == _GREP_HITS:
                        break
            taken.append((time.perf_counter() - started) * 1e3)
        found[f"scan, {kind}"] = summary(taken)
        if not kind.startswith("scan"):
            every += taken
    return {**found, "scan, all with a literal": summary(every), "memory_mb": resident_mb()}


SYSTEMS: dict[str, Callable[[BenchSet, int, int], dict[str, Any]]] = {
    system.__name__: system for system in (brute, own_chroma, chroma, own_tantivy, tantivy, bm25s, scan)
}

if __name__ == "__main__":
    chosen = BenchSet(Path(sys.argv[2]))
    print(json.dumps(SYSTEMS[sys.argv[1]](chosen, int(sys.argv[3]), int(sys.argv[4]))))
