"""In which place the record believes its dense index to be."""

from __future__ import annotations

from dataclasses import replace

from thresher.corpus.record.oplog import load_progress, save_progress
from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.local import IDENTITY as LOCAL

NAME = "dense"
DENSE_HOME = "dense_home"
"""Row of `meta`: the identity of the place where the dense index is; without it, it is local."""


def settle(store: Store, identity: str) -> None:
    """Record where the dense index lives from now on; what it has elsewhere is given up, to be built anew here."""
    before = store.meta(DENSE_HOME) or LOCAL
    if before == identity:
        return
    with store.write() as connection:
        put_meta(connection, DENSE_HOME, identity)
        progress = load_progress(connection, NAME)
        if progress.generation:
            moved = replace(progress, applied_seq=0, fault=f"it moves from {before} to {identity}")
            save_progress(connection, NAME, moved)
