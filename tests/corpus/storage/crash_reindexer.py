"""The process that the reindex crash tests kill: `crash_reindexer.py DIRECTORY STEP NUMBER`.

It kills itself when it comes to STEP for the NUMBER-th time, and says `done` if it never does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from storage_support import EMBEDDER, SpreadEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.derived import DerivedIndexes
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.lifecycle import mirror
from thresher.corpus.lifecycle.reindex import build_next

STEPS = ("laid out", "embedded", "written", "followed", "deleted", "sources", "level")


class Other(SpreadEmbedder):
    def __init__(self) -> None:
        super().__init__(48)
        self.info = EmbedderInfo("other", 48, "2")
        self.after: Callable[[], None] = lambda: None

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        rows = super().embed_passages(texts)
        self.after()
        return rows


def main() -> None:
    path, step, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    left = {step: number}

    def reached(name: str) -> None:
        if name in left:
            left[name] -= 1
            if left[name] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def then(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            reached(name)
            return result

        return run

    embedder = Other()
    embedder.after = lambda: reached("embedded")
    with Collection.open(path, embedder=EMBEDDER) as opened:
        wrapped: Any = Collection
        wrapped.create = then(Collection.create, "laid out")
        wrapped.write_batch = then(Collection.write_batch, "written")
        derived: Any = DerivedIndexes
        derived.follow = then(DerivedIndexes.follow, "followed")
        wrapped.delete_documents = then(Collection.delete_documents, "deleted")
        changed: Any = mirror
        changed.copy_sources = then(mirror.copy_sources, "sources")
        changed.remember = then(mirror.remember, "level")
        build_next(opened, embedder)
    print("done", flush=True)


if __name__ == "__main__":
    main()
