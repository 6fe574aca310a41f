"""In which place the record believes its dense index to be."""

from __future__ import annotations

import uuid
from dataclasses import replace

from thresher.corpus.record.oplog import load_progress, save_progress
from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.store import Store
from thresher.corpus.vectors.local import IDENTITY as LOCAL

NAME = "dense"
COLLECTION_ID = "collection_id"
"""Row of `meta`: tells this collection from any other, wherever. Whoever makes a second collection out of a record (a
copy, a restored snapshot beside the original) must delete the row there, or both would write to one remote index."""

DENSE_HOME = "dense_home"
"""Row of `meta`: the identity of the place where the dense index is; without it, it is local."""


def collection_id(store: Store) -> str:
    """The collection's unique id, given when it is first asked for."""
    known = store.meta(COLLECTION_ID)
    if known is not None:
        return known
    made = uuid.uuid4().hex
    with store.write() as connection:
        connection.execute("INSERT INTO meta VALUES (?, ?)", (COLLECTION_ID, made))
    return made


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
