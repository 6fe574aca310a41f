"""The process that the crash tests kill: `crash_writer.py DIRECTORY MODE SEED FIRST`.

It says `ack N` when write N returned.
What it writes follows from the seed and the number of the write, so that the parent knows what must be there.
"""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import load_backends
from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Source, Status

Kind = Literal["upsert", "delete", "finish_source", "remove_sources"]

SOURCES = 3
BULK_PERIOD, BULK_LENGTH = 12, 5
BASE_DOCUMENTS = 1_300


@dataclass(frozen=True)
class Mode:
    """How the collection is opened, and how many documents the writes touch."""

    backend: str
    exact_below: int
    names: tuple[str, ...]
    base: bool = False


_FEW = tuple(f"doc{i:02}" for i in range(30))
MODES = {
    "small": Mode("in-process", 0, _FEW),
    "child": Mode("child", 0, _FEW),
    "large": Mode("in-process", 5_000, tuple(f"doc{i:04}" for i in range(BASE_DOCUMENTS)), base=True),
}


@dataclass(frozen=True)
class Write:
    """One write: documents (id, text) for an upsert, ids to delete, or a source with the ids to keep."""

    kind: Kind
    documents: tuple[tuple[str, str], ...] = ()
    source: str = ""
    keep: frozenset[str] = frozenset()


@dataclass
class Model:
    """What a collection holds after some writes: texts by id, hashes of sources, and what died."""

    texts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)

    def apply(self, write: Write, number: int) -> None:
        if write.kind == "upsert":
            for name, text in write.documents:
                self.texts[name] = text
                self.dead.pop(name, None)
            return
        doomed = [name for name, _ in write.documents]
        if write.kind != "delete":
            doomed = [name for name in self.texts if source_of(name) == write.source and name not in write.keep]
        for name in doomed:
            if name in self.texts:
                self.dead[name] = self.texts.pop(name)
        if write.kind == "finish_source":
            self.sources[write.source] = f"hash {number}"
        elif write.kind == "remove_sources":
            self.sources.pop(write.source, None)


def write_of(mode: Mode, seed: int, number: int) -> Write:
    """Write `number` (from 1) of a history."""
    rng = random.Random(f"{seed} {number}")
    source = f"s{rng.randrange(SOURCES)}"
    own = [name for name in mode.names if source_of(name) == source]
    if number % 50 == 49 and not mode.base:
        return Write("remove_sources", source=source)
    if number % 10 == 6:
        dropped = rng.sample(own, 3)
        return Write("finish_source", source=source, keep=frozenset(own) - frozenset(dropped))
    if number % 5 == 4:
        # One of the documents of the write before, so that there surely is something to delete.
        doomed = [*write_of(mode, seed, number - 1).documents[:1], *((name, "") for name in rng.sample(own, 2))]
        return Write("delete", tuple((name, "") for name, _ in doomed))
    chosen = rng.sample(own, rng.randint(2, 6))
    return Write("upsert", tuple((name, text_of(name, number, rng.randint(1, 60))) for name in chosen), source)


def source_of(name: str) -> str:
    return f"s{int(name[3:]) % SOURCES}"


def text_of(name: str, number: int, sentences: int) -> str:
    """Text in which every sentence says which document and which write it comes from."""
    return " ".join(f"{name}w{number}x part{i} of {name} says {i * i * number}." for i in range(sentences))


def base_texts(mode: Mode) -> dict[str, str]:
    """The documents that are there before the first write: more than 5,000 chunks."""
    return {name: text_of(name, 0, 6) for name in mode.names} if mode.base else {}


def documents(changes: list[tuple[str, str]]) -> list[PreparedDocument]:
    return [prepared(name, text, size=60) for name, text in changes]


def model_after(mode: Mode, seed: int, count: int) -> Model:
    """What is there after the first `count` writes."""
    model = Model(base_texts(mode))
    for number in range(1, count + 1):
        model.apply(write_of(mode, seed, number), number)
    return model


def opened(path: Path, mode: Mode) -> Collection:
    return Collection.open(path, embedder=EMBEDDER, exact_below=mode.exact_below, backends=load_backends(mode.backend))


def perform(collection: Collection, write: Write, number: int) -> None:
    """Do it."""
    if write.kind == "upsert":
        collection.upsert(documents(list(write.documents)), source_id=write.source)
    elif write.kind == "delete":
        collection.delete_documents([name for name, _ in write.documents])
    elif write.kind == "finish_source":
        row = Source(write.source, "/data", f"hash {number}", 10, 1.5, Status.INDEXED)
        collection.finish_source(row, keep=write.keep)
    else:
        collection.remove_sources([write.source])


def main() -> None:
    path, mode, seed, number = Path(sys.argv[1]), MODES[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4])
    collection = opened(path, mode)
    collection.search("warm up")
    print("ready", flush=True)
    with ExitStack() as bulk:
        inside = False
        while True:
            wanted = 1 <= number % BULK_PERIOD <= BULK_LENGTH
            if wanted and not inside:
                bulk.enter_context(collection.bulk())
            elif inside and not wanted:
                bulk.close()
            inside = wanted
            if number % 20 == 13 and not mode.base:
                collection.compact()
            perform(collection, write_of(mode, seed, number), number)
            print(f"ack {number}", flush=True)
            if number % 7 == 0:
                collection.search(f"part{number} says")
                collection.grep(f"says {number}")
            number += 1


if __name__ == "__main__":
    main()
