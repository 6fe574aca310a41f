"""The unique id of a collection, kept in the record's `meta`: what names it on a server, among all others."""

from __future__ import annotations

import uuid

from thresher.corpus.record.schema import put_meta
from thresher.corpus.record.store import Store

COLLECTION_ID = "collection_id"
"""Row of `meta`: tells this collection from any other, wherever. Whoever makes a second collection out of a record (a
copy, a restored snapshot beside the original) must delete the row there, or both would write to one remote index."""


def collection_id(store: Store) -> str:
    """The collection's unique id, 32 hexadecimal digits, given when it is first asked for."""
    known = store.meta(COLLECTION_ID)
    if known is not None:
        return known
    made = uuid.uuid4().hex
    with store.write() as connection:
        put_meta(connection, COLLECTION_ID, made)
    return made
