"""What `scale.py` and `grep.py` measure of Thresher, each part in a process of its own.

`python -m support.thresher_system PART DIR REPEAT` prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from support.bench_set import BenchSet
from support.grep_patterns import grep_patterns
from support.synthetic import GivenVectors
from support.timing import Row, bytes_under, child_environment, latencies, recall_at_10, resident_mb, summary
from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, Hit, PreparedDocument, Span
from thresher.corpus.embedders.base import embedding_hash
from thresher.corpus.errors import SearchTimeout
from thresher.corpus.filters import Filter, parse_filter

FILTERS = {
    "keeps 0.1 %": {"type": "eq", "key": "thousandth", "value": 7},
    "keeps 5 %": {"type": "eq", "key": "twentieth", "value": 7},
    "keeps 50 %": {"type": "eq", "key": "half", "value": 1},
}


def opened(bench: BenchSet) -> Collection:
    """The collection, open."""
    return Collection.open(bench.collection, embedder=GivenVectors(bench.question_vectors.shape[1]))


def opening(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Time and memory of opening after a clean end, of the first search, and of closing; size on disk."""
    before = resident_mb()
    started = time.perf_counter()
    collection = opened(bench)
    open_at = time.perf_counter()
    question, vector = bench.questions[0]["text"], bench.question_vectors[0]
    collection.search(question, vector=vector)
    searched = time.perf_counter()
    after = resident_mb()
    for asked, own in zip(bench.questions, bench.question_vectors, strict=True):
        collection.search(asked["text"], vector=own)
    stats_at = time.perf_counter()
    stats = collection.stats()
    stats_s = time.perf_counter() - stats_at
    memory = resident_mb()
    closing_at = time.perf_counter()
    collection.close()
    closed = time.perf_counter() - closing_at
    parts = {"corpus.db": (bench.collection / "corpus.db").stat().st_size}
    parts |= {name: bytes_under(bench.collection / name) for name in ("tantivy", "chroma")}
    text = sum(len(passage.encode()) for _, passage in zip(range(2_000), bench.texts(), strict=False)) / 2_000
    return {
        "open_s": round(open_at - started, 3),
        "first_search_s": round(searched - open_at, 3),
        "stats_s": round(stats_s, 3),
        "close_s": round(closed, 3),
        "memory_mb": {"before": before, "after the first search": after, "after all searches": memory},
        "bytes_per_chunk": {name: round(size / stats.chunks) for name, size in parts.items()},
        "text_bytes_per_chunk": round(text),
        "dense": f"{stats.dense} ({stats.dense_reason})",
    }


def searching(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Latency of search, filtered search, and the recall of its dense ranking."""
    texts, vectors = [question["text"] for question in bench.questions], bench.question_vectors
    with opened(bench) as collection:

        def search(i: int, where: Filter | None = None) -> list[Hit]:
            return collection.search(texts[i], vector=vectors[i], where=where)

        found: dict[str, Any] = {"search": latencies(search, repeat)}
        for name, raw in FILTERS.items():
            work = partial(search, where=parse_filter(raw))
            found[f"search, filter {name}"] = latencies(work, min(repeat, 100))
        deep = [collection.search(text, vector=vector, limit=100) for text, vector in zip(texts, vectors, strict=True)]
        found["recall"] = recall_at_10([_dense_order(hits) for hits in deep], bench.truth)
        passages = [question["passage"] + 1 for question in bench.questions]
        found["own passage among 10"] = round(
            sum(own in {hit.chunk.id for hit in hits[:10]} for own, hits in zip(passages, deep, strict=True))
            / len(deep),
            4,
        )
    return found


def grepping(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Latency of grep by kind of pattern; `timeouts` counts those that did not end within the deadline.

    The first 40 greps with a literal are told apart; then what is read ahead in the background is waited for.
    """
    with opened(bench) as collection:
        numbers = range(1, collection.chunk_count + 1, max(1, collection.chunk_count // 997))
        texts = [chunk.text for chunk in collection.chunks(numbers)]
        found: dict[str, Any] = {}
        every: list[float] = []
        first = [p for kind, own in grep_patterns(texts, 6, 2).items() if not kind.startswith("scan") for p in own][:40]
        found["grep, the first 40 with a literal"] = latencies(lambda i: collection.grep(first[i]), len(first), warm=0)
        started = time.perf_counter()
        for thread in threading.enumerate():
            if thread.name == "thresher-grep-ahead":
                thread.join()
        found["read_ahead_s"] = round(time.perf_counter() - started, 2)
        for kind, patterns in grep_patterns(texts, max(10, repeat // 4), 1).items():
            taken, timeouts = [], 0
            for pattern in patterns:
                started = time.perf_counter()
                try:
                    collection.grep(pattern)
                except SearchTimeout:
                    timeouts += 1
                taken.append((time.perf_counter() - started) * 1e3)
            found[f"grep, {kind}"] = {**summary(taken), "timeouts": timeouts}
            if not kind.startswith("scan"):
                every += taken
        found["grep, all with a literal"] = summary(every)
    return found


def changing(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Latency of writing one document of four passages, of replacing and of deleting it; all is then as before."""
    vectors = bench.vectors
    texts = [text for _, text in zip(range(4), bench.texts(), strict=False)]

    def document(number: int, version: int) -> PreparedDocument:
        name = f"benchmark-{number}"
        spans, at = [], 0
        for text in texts:
            spans.append(Span(at, at + len(text)))
            at += len(text)
        rows = np.roll(-vectors[number * 4 : number * 4 + 4], version, axis=1)
        hashes = tuple(embedding_hash(f"{name} {version} {i}") for i in range(4))
        return PreparedDocument(
            Document(name, f"file:///{name}", name, "".join(texts), {}, hashes[0]), tuple(spans), hashes, rows
        )

    count = min(repeat, 20)
    with opened(bench) as collection:
        collection.search("warm", vector=bench.question_vectors[0])
        return {
            "upsert": latencies(lambda i: collection.upsert([document(i, 0)], source_id="b"), count, warm=0),
            "replace": latencies(lambda i: collection.upsert([document(i, 1)], source_id="b"), count, warm=0),
            "delete": latencies(lambda i: collection.delete_documents([f"benchmark-{i}"]), count, warm=0),
        }


def killed(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Time of opening and of the first search after `kill -9` of a process that had it open and had just written."""
    with subprocess.Popen(
        [sys.executable, "-m", "support.thresher_system", "held", str(bench.root), "1"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(child_environment()),
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGKILL)
    started = time.perf_counter()
    with opened(bench) as collection:
        open_at = time.perf_counter()
        collection.search(bench.questions[0]["text"], vector=bench.question_vectors[0])
        searched = time.perf_counter()
        collection.delete_documents(["benchmark-held"])
        stats = collection.stats()
    return {
        "open_s": round(open_at - started, 3),
        "first_search_s": round(searched - open_at, 3),
        "dense": f"{stats.dense} ({stats.dense_reason})",
        "memory_mb": resident_mb(),
    }


def held(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Write a document, say so, and wait to be killed."""
    collection = opened(bench)
    collection.search("warm", vector=bench.question_vectors[0])
    text = "a document that was being held"
    collection.upsert(
        [
            PreparedDocument(
                Document("benchmark-held", "file:///held", "held", text, {}, "held"),
                (Span(0, len(text)),),
                (embedding_hash("held"),),
                -bench.question_vectors[:1],
            )
        ],
        source_id="benchmark",
    )
    print("held", flush=True)
    time.sleep(3_600)
    return {}


def verifying(bench: BenchSet, repeat: int) -> dict[str, Any]:
    """Time and memory of `verify`."""
    with opened(bench) as collection:
        started = time.perf_counter()
        report = collection.verify()
        return {
            "verify_s": round(time.perf_counter() - started, 2),
            "problems": list(report.problems),
            "memory_mb": resident_mb(),
        }


def _dense_order(hits: list[Hit]) -> list[int]:
    """Passage numbers of the hits that the dense ranking found, nearest first."""
    own = [(-hit.dense, hit.chunk.id) for hit in hits if hit.dense is not None]
    return [chunk_id - 1 for _, chunk_id in sorted(own)]


PARTS: dict[str, Callable[[BenchSet, int], dict[str, Any] | Row]] = {
    part.__name__: part for part in (opening, searching, grepping, changing, killed, held, verifying)
}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](BenchSet(Path(sys.argv[2])), int(sys.argv[3]))))
