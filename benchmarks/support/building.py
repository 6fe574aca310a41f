"""Building the collection that `scale.py` and `grep.py` measure; an interrupted build goes on where it stopped."""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path

from support.bench_set import BenchSet
from support.synthetic import PASSAGES_PER_DOCUMENT, GivenVectors, Synthesizer
from thresher.corpus.collection import Collection

_BATCH = 250  # documents a transaction, as many passages as the derived indexes follow in one step
_SAY_EVERY = 20_000


def ready(texts: Path, keep: Path, chunks: int, *, dimension: int, questions: int) -> BenchSet:
    """The set of one size in a folder of `keep`, built as far as it is not there."""
    bench = BenchSet(keep.resolve() / str(chunks))
    bench.root.mkdir(parents=True, exist_ok=True)
    synthesizer = Synthesizer(texts, dimension=dimension)
    build(bench.collection, synthesizer, chunks)
    bench.prepare(synthesizer, chunks, questions)
    return bench


def build(path: Path, synthesizer: Synthesizer, chunks: int) -> None:
    """Fill the collection in `path` up to `chunks`; appends a line a step to `build.jsonl` beside it."""
    embedder = GivenVectors(synthesizer.dimension)
    with Collection.open_or_create(path, embedder) as collection, (path.parent / "build.jsonl").open("a") as log:
        done = collection.chunk_count
        numbers = range(done // PASSAGES_PER_DOCUMENT, -(-chunks // PASSAGES_PER_DOCUMENT))
        made = (
            synthesizer.document(number, min(PASSAGES_PER_DOCUMENT, chunks - number * PASSAGES_PER_DOCUMENT))
            for number in numbers
        )
        spent, begun, making = 0.0, done, 0.0
        with collection.bulk():
            while True:
                started = time.perf_counter()
                batch = list(islice(made, _BATCH))
                made_at = time.perf_counter()
                if not batch:
                    break
                collection.upsert(batch, source_id="benchmark")
                written = time.perf_counter()
                making, spent = making + made_at - started, spent + written - made_at
                done += sum(len(document.spans) for document in batch)
                if done // _SAY_EVERY > begun // _SAY_EVERY or done >= chunks:
                    step = {"chunks": done, "rate": round((done - begun) / spent, 1), "seconds": round(spent, 2)}
                    log.write(json.dumps({**step, "making": round(making, 2)}) + "\n")
                    log.flush()
                    print(f"{done:>9} chunks, {step['rate']:.0f} a second", flush=True)
                    spent, making, begun = 0.0, 0.0, done
        started = time.perf_counter()
    print(f"closed in {time.perf_counter() - started:.1f} s", flush=True)
