"""The process that the crash tests kill: `crash_writer.py DIRECTORY SEED FIRST`. Says `ack N` when write N returned."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument

NAMES = [f"doc{i:02}" for i in range(30)]


def operation(seed: int, number: int) -> tuple[str, list[tuple[str, str]]]:
    """Write `number` (from 1) of a history: ("upsert" | "delete", [(document id, text)])."""
    rng = random.Random(f"{seed} {number}")
    chosen = rng.sample(NAMES, rng.randint(2, 6))
    if number % 4 == 0:
        # One of the documents of the write before, so that there surely is something to delete.
        return "delete", [*operation(seed, number - 1)[1][:1], *((name, "") for name in chosen)]
    return "upsert", [(name, text_of(name, number, rng.randint(1, 60))) for name in chosen]


def text_of(name: str, number: int, sentences: int) -> str:
    """Text in which every sentence says which document and which write it comes from."""
    return " ".join(f"{name}w{number} part{i} of {name} says {i * i * number}." for i in range(sentences))


def documents(changes: list[tuple[str, str]]) -> list[PreparedDocument]:
    return [prepared(name, text, size=60) for name, text in changes]


def model_after(seed: int, count: int) -> dict[str, str]:
    """The documents after the first `count` writes."""
    model: dict[str, str] = {}
    for number in range(1, count + 1):
        kind, changes = operation(seed, number)
        for name, text in changes:
            if kind == "upsert":
                model[name] = text
            else:
                model.pop(name, None)
    return model


def main() -> None:
    directory, seed, first = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    collection = Collection.open(directory, embedder=EMBEDDER, exact_below=0)
    collection.search("warm up")
    number = first
    print("ready", flush=True)
    while True:
        kind, changes = operation(seed, number)
        if kind == "upsert":
            collection.upsert(documents(changes), source_id="s")
        else:
            collection.delete_documents([name for name, _ in changes])
        print(f"ack {number}", flush=True)
        number += 1


if __name__ == "__main__":
    main()
