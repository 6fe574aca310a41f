"""A process that kills itself at one step: `crash_step.py DIRECTORY SCENARIO TARGET WHEN NTH`.

TARGET is `module:name` of a function or method; the process dies right before or after its NTH call from the moment on
that the scenario begins.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_support import EMBEDDER, prepared, source

from thresher.corpus.backends import load_backends
from thresher.corpus.collection import Collection

TEXTS = {f"d{i:02}": f"d{i:02}old alpha {i} beta. " * 6 for i in range(12)}
NEW = {"d03": "d03new gamma. " * 9, "n00": "n00new delta. " * 9}


def documents(texts: dict[str, str]) -> list[Any]:
    return [prepared(name, text, size=60) for name, text in texts.items()]


def build(path: Path) -> None:
    """The collection that scenarios begin with."""
    with Collection.create(path, EMBEDDER, exact_below=0) as opened:
        opened.upsert(documents(TEXTS), source_id="s")
        opened.search("warm up")


def opened(path: Path, backend: str = "in-process") -> Collection:
    collection = Collection.open(path, embedder=EMBEDDER, exact_below=0, backends=load_backends(backend))
    collection.search("warm up")
    return collection


def write(path: Path, arm: Callable[[], None], backend: str = "in-process") -> None:
    collection = opened(path, backend)
    arm()
    collection.upsert(documents(NEW), source_id="s")
    print("acknowledged", flush=True)


def write_child(path: Path, arm: Callable[[], None]) -> None:
    write(path, arm, "child")


def write_many(path: Path, arm: Callable[[], None]) -> None:
    collection = Collection.open(path, embedder=EMBEDDER)
    for i in range(20):
        collection.upsert(documents({f"n{i:02}": f"n{i:02}new delta {i}. " * 9}), source_id="s")
    arm()
    collection.close()


def delete(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    arm()
    collection.delete_documents(["d03", "d04"])


def finish(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    arm()
    collection.finish_source(source("s"), keep=set(TEXTS) - {"d03", "d04"})


def bulk(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    arm()
    with collection.bulk():
        for name, text in NEW.items():
            collection.upsert(documents({name: text}), source_id="s")


def close(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    collection.upsert(documents(NEW), source_id="s")
    arm()
    collection.close()


def create(path: Path, arm: Callable[[], None]) -> None:
    arm()
    Collection.create(path, EMBEDDER, exact_below=0)


def reopen(path: Path, arm: Callable[[], None]) -> None:
    """What was killed before finds operations that no index has followed."""
    arm()
    opened(path)


def rebuild(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    arm()
    collection.rebuild()


def compact(path: Path, arm: Callable[[], None]) -> None:
    collection = opened(path)
    collection.upsert(documents(NEW), source_id="s")
    arm()
    collection.compact()


def repair(path: Path, arm: Callable[[], None]) -> None:
    """Chroma's files are damaged: they are put aside and built anew in the background."""
    (path / "chroma" / "1" / "chroma.sqlite3").write_bytes(b"not a database at all" * 500)
    arm()
    collection = opened(path)
    collection.wait_for_repair(60)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        *(write, write_child, write_many, delete, finish, bulk),
        *(close, create, reopen, rebuild, compact, repair),
    )
}


def main() -> None:
    path, scenario, target, when, nth = Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
    module, _, qualified = target.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = qualified.split(".")
    for part in outer:
        holder = getattr(holder, part)
    real = getattr(holder, name)
    armed, calls = False, 0

    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += armed
        if armed and when == "before" and calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        own = calls
        result = real(*arguments, **named)
        if armed and when == "after" and own == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def arm() -> None:
        nonlocal armed
        armed = True

    setattr(holder, name, deadly)
    SCENARIOS[scenario](path, arm)


if __name__ == "__main__":
    main()
